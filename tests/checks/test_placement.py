"""Checks of GPUs, replicas and host memory."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checks.deployments import LLAMA, changed, serious

from tts.build.spec import Gpu
from tts.checks import lint, placement

TWO = "llama-8b-prm-8b-2xh100-bf16"


@pytest.mark.parametrize(
    ("base", "gpus", "texts"),
    [
        (LLAMA, [[8]], ("names GPU 8, but machines with h100 have at most 8", "from 0 to 7")),
        (TWO, [[0, 9]], ("names GPU 9, but", "from 0 to 7")),
        (TWO, [[0, 1], [8, 9]], ("names GPU 8 and 9, but",)),
        (LLAMA, [[0], [0]], ("more than one replica of the generator on GPU 0", "of its own")),
        (TWO, [[0, 1], [1, 2]], ("more than one replica of the generator on GPU 1",)),
    ],
)
def test_gpus_that_are_not_there_or_taken(base: str, gpus: list[list[int]], texts: tuple[str, ...]):
    deployment = changed(base, {"generator.tensorrt.gpus": gpus})
    (finding,) = [
        *lint(deployment, [placement.gpu_numbers]),
        *lint(deployment, [placement.replicas]),
    ]
    assert finding.where == "generator.tensorrt.gpus"
    for text in texts:
        assert text in str(finding)


@given(gpus=st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_a_placement_is_doubted_just_if_a_gpu_is_taken_twice_or_beyond_the_machine(gpus: list[int]):
    deployment = changed(LLAMA, {"verifier.tensorrt.gpus": [[gpu] for gpu in gpus]})
    assert any(lint(deployment, [placement.gpu_numbers])) == (max(gpus) >= 8)
    assert any(lint(deployment, [placement.replicas])) == (len(set(gpus)) < len(gpus))


def test_a_host_cache_is_counted_for_every_rank():
    def found(changes: dict[str, Any]) -> list[str]:
        return [str(finding) for finding in serious(changed(TWO, changes))]

    assert found({"generator.tensorrt.kv_host_gib": 2048}) == []
    (finding,) = found({"generator.tensorrt.kv_host_gib": 2049})
    assert "takes 4,098 GiB of host memory over all ranks; no host has more than" in finding
    assert "Lower generator.tensorrt.kv_host_gib" in finding
    both = {"generator.tensorrt.kv_host_gib": 1000, "verifier.tensorrt.kv_host_gib": 1500}
    (finding,) = found(both)
    assert finding.startswith("verifier.tensorrt.kv_host_gib: takes 5,000 GiB")


def test_every_kind_of_gpu_has_a_largest_machine():
    assert set(placement.MOST_GPUS) == set(get_args(Gpu))
