"""The cases that the bench of simulated schedules has, and those that it draws."""

from typing import get_args

import pytest
from scripts.bench.simulated_schedules import VARIANTS, drawn_rows, rows, scenario_of, summary

from tts.build.spec import Gpu


def test_a_seed_draws_the_same_cases_and_more_of_them_begin_alike() -> None:
    assert drawn_rows(40, 1) == drawn_rows(60, 1)[:40]
    assert drawn_rows(40, 1) != drawn_rows(40, 2)


def test_every_row_has_a_name_of_its_own() -> None:
    for every in (list(rows()), drawn_rows(300, 1)):
        assert len({row.name for row in every}) == len(every)


def test_what_is_drawn_covers_every_gpu_and_both_ends() -> None:
    drawn = drawn_rows(300, 1)
    assert {row.gpu for row in drawn} == set(get_args(Gpu))
    assert min(row.n for row in drawn) == 4
    assert 200 < max(row.n for row in drawn) <= 256
    assert min(row.in_flight for row in drawn) == 1
    assert 50 < max(row.in_flight for row in drawn) <= 64
    assert not any(row.precision == "fp8" and row.gpu.startswith("a100") for row in drawn)


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_drawn_can_be_simulated(seed: int) -> None:
    for row in drawn_rows(100, seed):
        scenario = scenario_of(row, "off")
        assert scenario.problems * row.n <= 1536 or scenario.problems == 4
        assert getattr(scenario.parameters, "beam_width", row.beam_width) == row.beam_width


def test_a_row_in_which_another_schedule_is_faster_is_named() -> None:
    drawn = drawn_rows(2, 1)
    runs = [
        {
            "row": row.name,
            "schedule": schedule,
            "speculation": speculation,
            "wall_s": 9.5 if (row, schedule) == (drawn[1], "batched") else 10.0,
            "digest": "same",
        }
        for row in drawn
        for schedule, speculation in VARIANTS
    ]
    said = summary(drawn, runs)
    assert "decoupled is first in 1 of 2 rows, within 2% of the first in 1" in said
    assert f"worst 0.950 ({drawn[1].name}); aim 0.98, missed in 1 of 2 rows" in said
