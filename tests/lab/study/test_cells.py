"""Which runs a study makes, in which order, and how long they are expected to take."""

from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.lab.study.cells import (
    BASE,
    FULL,
    LEAST_PROBLEMS,
    MOST_PROBLEMS,
    QUICK,
    RESTART_S,
    CellEngines,
    cells_of,
    problems_of_rounds,
    problems_that_fit,
    seconds_left,
    starts,
    steps_of,
)
from tts.lab.study.engine_tables import SHARES
from tts.problem import Problem

FORMS = st.sampled_from([QUICK, FULL]).flatmap(
    lambda form: st.builds(
        replace,
        st.just(form),
        rounds=st.integers(1, 4),
        shares=st.sets(st.integers(3, 97), max_size=4).map(
            lambda each: tuple(percent / 100 for percent in sorted(each))
        ),
        reuse_off=st.booleans(),
    )
)


def cells(form=QUICK, share=0.2, reuse=True, n=16, problems=None):
    return cells_of(form, n=n, beam_width=4, share=share, reuse=reuse, problems=problems)


@given(FORMS)
def test_every_cell_differs_from_the_base_in_one_thing_and_has_its_own_name(form):
    base, *others = cells(form)
    assert base.name == BASE
    assert len({cell.name for cell in others} | {BASE}) == len(others) + 1
    for cell in others:
        varied = ("n", "engines", "schedule", "speculation", "in_flight")
        assert sum(getattr(cell, name) != getattr(base, name) for name in varied) == 1


@given(FORMS)
def test_cells_with_the_same_engines_stand_together_in_every_round(form):
    steps = steps_of(cells(form), form.rounds)
    kinds = len({step.cell.engines for step in steps})
    for number in range(1, form.rounds + 1):
        of_round = [step.cell.engines for step in steps if step.round == number]
        assert len(list(groupby(of_round))) == kinds
    # a round begins with the engines with which the one before it has ended
    assert starts(steps) == 1 + form.rounds * (kinds - 1)


def test_every_cell_runs_once_in_every_round():
    planned = cells()
    steps = steps_of(planned, 3)
    assert len(set(steps)) == len(steps) == 3 * len(planned)
    assert len({step.folder for step in steps}) == len(steps)
    assert [step.cell for step in steps] == [*planned, *planned[::-1], *planned]


def test_where_servers_cannot_be_started_anew_all_cells_share_one():
    assert {cell.engines for cell in cells(share=None, reuse=False)} == {CellEngines()}


def test_the_present_division_is_not_run_twice():
    names = [cell.name for cell in cells(share=0.501)]
    assert "split-50" not in names
    assert "split-5" in names


def test_a_limit_of_problems_in_flight_that_is_not_reached_is_left_out():
    for problems, limits in ((2, [1]), (3, [1, 2]), (None, [1, 2, 4])):
        assert [cell.in_flight for cell in cells(problems=problems) if cell.in_flight] == limits


@pytest.mark.parametrize(("n", "found"), [(16, {4, 8, 32}), (4, {8}), (8, {4, 16})])
def test_numbers_of_completions_are_multiples_of_the_beam_width(n, found):
    assert {cell.n for cell in cells(n=n)} == found | {n}


@given(st.floats(1e-4, 1.0))
def test_a_quick_study_fits_its_time_unless_even_the_fewest_problems_do_not(unit_s):
    planned = cells()
    count = problems_that_fit(QUICK, planned, unit_s)
    steps = steps_of(planned, QUICK.rounds)
    expected = seconds_left(steps, count, {}, unit_s=unit_s) + QUICK.load_s
    assert LEAST_PROBLEMS <= count <= MOST_PROBLEMS
    assert count == LEAST_PROBLEMS or expected <= 60 * QUICK.minutes + 1e-6


def test_a_study_has_as_many_problems_as_its_form_says():
    assert problems_that_fit(QUICK, cells(), 100.0) == LEAST_PROBLEMS
    assert problems_that_fit(QUICK, cells(), 1e-9) == MOST_PROBLEMS
    assert problems_that_fit(FULL, cells(FULL), 1.0) == FULL.problems


@pytest.mark.parametrize("shares", [QUICK.shares, FULL.shares, SHARES])
def test_divisions_go_through_all_of_the_memory(shares):
    assert list(shares) == sorted(set(shares))
    assert 0 < shares[0] <= 0.05
    assert 0.95 <= shares[-1] < 1


def test_the_time_left_goes_by_cells_that_ran_already():
    planned = cells(replace(QUICK, shares=(), reuse_off=False))
    steps = steps_of(planned, 1)
    finished = {cell.name: 3.0 for cell in planned[1:]}
    assert seconds_left(steps, 5, finished, unit_s=0.5) == pytest.approx(
        RESTART_S + 3.0 * (len(planned) - 1) + 5 * 16 * 0.5
    )
    assert seconds_left([], 5, finished, unit_s=0.5) == 0
    alone = [step for step in steps if step.cell.name in ("lockstep", "in-flight-1")]
    assert seconds_left(alone, 5, {}, unit_s=0.5, start_s=7.0) == 7.0 + 2 * 5 * 1.6 * 16 * 0.5


@given(st.integers(1, 5), st.integers(1, 20), st.integers(0, 40))
def test_rounds_have_different_problems_and_as_many_each(rounds, count, more):
    problems = [Problem(str(i), "?", None) for i in range(rounds + more)]
    each = problems_of_rounds(problems, rounds, count)
    ids = [problem.id for part in each for problem in part]
    assert len(set(ids)) == len(ids)
    assert {len(part) for part in each} == {min(count, len(problems) // rounds)}
