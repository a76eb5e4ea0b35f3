"""Scores of right and wrong completions."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs.logs import solved

from tts.runs.events import LoggedAnswer, LoggedCompletion
from tts.runs.verdicts import ScoreCalibration

SCORES = st.lists(st.integers(0, 100).map(lambda score: score / 100), max_size=12)
GROUPS = (LoggedAnswer("1", True), LoggedAnswer("2", False))


def calibration_of(right, wrong, **fields):
    found = ScoreCalibration()
    scored = [(score, 0) for score in right] + [(score, 1) for score in wrong]
    completions = tuple(LoggedCompletion((i,), *pair) for i, pair in enumerate(scored))
    fields = {"correct": {}, "groups": GROUPS, "completions": completions} | fields
    found.add(solved("a", 1.0, **fields))
    return found


@given(SCORES, SCORES)
def test_auroc_is_the_share_of_pairs_in_order(right, wrong):
    auroc = calibration_of(right, wrong).auroc
    pairs = [(above > below) + (above == below) / 2 for above, below in product(right, wrong)]
    assert auroc == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)


@given(SCORES, SCORES, st.integers(1, 20))
def test_every_score_is_in_one_bin(right, wrong, count):
    bins = list(calibration_of(right, wrong).bins(count))
    assert sum(part.right for part in bins) == len(right)
    assert sum(part.wrong for part in bins) == len(wrong)
    for part in bins:
        if part.mean_score is not None:
            assert part.low - 1e-9 <= part.mean_score <= part.high + 1e-9


def test_a_verifier_that_is_as_sure_as_it_is_right_has_no_error():
    assert calibration_of([0.75] * 3, [0.75]).expected_error == pytest.approx(0.0)
    assert calibration_of([0.0], [1.0]).expected_error == pytest.approx(1.0)
    assert calibration_of([], []).expected_error is None


def test_scores_beyond_0_and_1_are_in_the_outer_bins():
    bins = list(calibration_of([1.5], [-0.5]).bins(4))
    assert (bins[3].right, bins[0].wrong) == (1, 1)


def test_what_says_nothing_is_left_out_and_a_completion_without_an_answer_is_wrong():
    done = (LoggedCompletion((0,), None, 0), LoggedCompletion((1,), 0.5, -1))
    found = calibration_of([], [], completions=done)
    assert (found.right, found.wrong, found.without_score) == (0, 1, 1)
    assert calibration_of([0.5], [0.5], correct=None).right == 0
