"""Seconds of a step: against hand-worked numbers."""

from pathlib import Path

import pytest
from tests.build.planned_pair import ONE_B, PRM, generator, near

from tts.build.tensorrt.gpus import GPUS
from tts.build.tensorrt.model_shape import shape_of
from tts.build.tensorrt.roofline import Roofline, roofline


def of(checkpoint: Path, gpu: str) -> Roofline:
    return roofline(shape_of(checkpoint), generator(checkpoint=checkpoint), GPUS[gpu])  # type: ignore[index]


@pytest.mark.parametrize(
    ("gpu", "batch", "milliseconds"),
    [
        ("a100-80g", 1, 1.53), ("h100", 1, 0.93), ("h200", 1, 0.65),
        ("a100-80g", 64, 2.16), ("h100", 64, 1.31), ("h200", 64, 0.92),
        ("a100-80g", 512, 6.94), ("h100", 512, 4.06), ("h200", 512, 2.83),
        ("a100-80g", 1024, 13.9), ("h100", 1024, 7.20), ("h200", 1024, 5.02),
    ],
)  # fmt: skip
def test_hand_worked_decode_steps(gpu: str, batch: int, milliseconds: float) -> None:
    assert 1e3 * of(ONE_B, gpu).decode_s(batch, context=500) == near(milliseconds, 0.015)


@pytest.mark.parametrize(("gpu", "milliseconds"), [("a100-80g", 156), ("h100", 49)])
def test_hand_worked_prefill_of_2048_tokens(gpu: str, milliseconds: float) -> None:
    assert 1e3 * of(PRM, gpu).prefill_s(1, 2048, 0) == near(milliseconds, 0.03)


def test_small_prefills_cost_as_much_as_reading_the_weights() -> None:
    assert 1e3 * of(PRM, "a100-80g").prefill_s(1, 1, 0) == near(9.2)  # 8.6 for the layers alone


def test_of_a_prompt_that_is_cached_in_part_the_rest_is_computed() -> None:
    engine = of(PRM, "h100")
    whole, rest = engine.prefill_s(1, 2048, 0), engine.prefill_s(1, 1024, 1024)
    assert engine.prefill_s(1, 1024, 0) < rest < whole
