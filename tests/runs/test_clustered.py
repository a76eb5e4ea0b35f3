"""Statistics of scores with labels, and intervals that respect problems."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs.logs import solved

from tts.runs.clustered import (
    Estimate,
    Observations,
    auroc,
    auroc_within,
    brier,
    expected_error,
    harmonic_mean,
    log_loss,
    rank_correlation,
    ratio,
    score_bins,
)
from tts.runs.events import LoggedAnswer, LoggedCompletion
from tts.runs.verdicts import ScoreCalibration

ROWS = st.lists(
    st.tuples(st.integers(0, 20).map(lambda n: n / 20), st.booleans(), st.integers(0, 4)),
    max_size=25,
)


def observed(rows, count=5):
    scores, right, problems = zip(*rows, strict=True) if rows else ((), (), ())
    return Observations.of(scores, right, problems, count)


def share_in_order(pairs):
    return sum((above > below) + (above == below) / 2 for above, below in pairs) / len(pairs)


@given(ROWS)
def test_auroc_is_the_share_of_pairs_in_order_over_all_problems_and_within_each(rows):
    right, wrong = [row for row in rows if row[1]], [row for row in rows if not row[1]]
    every = [(a[0], b[0]) for a, b in product(right, wrong)]
    alike = [(a[0], b[0]) for a, b in product(right, wrong) if a[2] == b[2]]
    for measure, pairs in ((auroc, every), (auroc_within, alike)):
        area = measure(observed(rows))
        assert (area is None) == (not pairs)
        if area is not None:
            assert area.value == pytest.approx(share_in_order(pairs))
            low, high = area.interval
            assert 0 <= low <= area.value + 1e-9
            assert area.value - 1e-9 <= high <= 1


@given(ROWS, st.integers(2, 4))
def test_problems_said_twice_do_not_move_an_estimate(rows, times):
    for measure in (auroc, auroc_within, brier, log_loss, expected_error):
        area = measure(observed(rows))
        if area is None:
            continue
        copies = [(s, r, p + 5 * copy) for copy in range(times) for s, r, p in rows]
        again = measure(observed(copies, 5 * times))
        assert again.value == pytest.approx(area.value)
        assert again.error <= area.error or again.error == pytest.approx(area.error)


def world(generator, problems, chains=8):
    """Chains whose scores and labels share what is hard in their problem."""
    ease = generator.normal(1.5, 1.5, problems).repeat(chains)
    right = generator.random(len(ease)) < 1 / (1 + np.exp(-ease))
    noise = generator.normal(0, 1, len(ease))
    scores = 1 / (1 + np.exp(-(right * 1.0 + 0.5 * ease + noise)))
    return Observations(scores, right, np.arange(problems).repeat(chains), problems)


def resampled(these, generator):
    """The observations of as many problems, drawn with replacement."""
    parts = [
        np.flatnonzero(these.problems == p) for p in generator.integers(0, these.count, these.count)
    ]
    sizes = [len(part) for part in parts]
    return Observations(
        these.scores[np.concatenate(parts)],
        these.right[np.concatenate(parts)],
        np.arange(len(parts)).repeat(sizes),
        these.count,
    )


@pytest.mark.parametrize(
    "measure",
    [
        auroc,
        auroc_within,
        brier,
        log_loss,
        lambda these: expected_error(these.scored(these.scores**3)),  # no bin near its label's
        lambda these: rank_correlation(these, these.scores**2 + np.arange(len(these)) % 3),
        lambda these: harmonic_mean(
            ratio(these.sums((these.scores > 0.6) & these.right), these.sums(these.right)),
            ratio(these.sums((these.scores < 0.6) & ~these.right), these.sums(~these.right)),
        ),
        lambda these: auroc(these) - auroc_within(these),
    ],
)
def test_standard_errors_are_those_of_drawing_problems_anew(measure):
    generator = np.random.default_rng(1)
    these = world(generator, 120)
    resamples = [measure(resampled(these, generator)).value for _ in range(200)]
    assert measure(these).error == pytest.approx(np.std(resamples, ddof=1), rel=0.2)


def test_intervals_hold_the_truth_as_often_as_they_say():
    generator = np.random.default_rng(2)
    truth = auroc(world(generator, 20_000)).value
    inside = sum(
        low <= truth <= high
        for low, high in (auroc(world(generator, 25)).interval for _ in range(200))
    )
    assert 184 <= inside <= 198  # 190 expected


def test_few_problems_that_agree_are_no_certainty():
    parted = observed([(0.9, True, p) for p in range(3)] + [(0.1, False, p) for p in range(3)])
    low, high = auroc(parted).interval
    assert low < 0.6
    assert high == 1.0
    assert auroc(observed([(0.9, True, 0), (0.1, False, 0)])).interval == (0.0, 1.0)


def test_comparisons_are_paired_and_wider_where_several_are_to_hold():
    these = world(np.random.default_rng(3), 150)
    squeezed = these.scored(these.scores**3)
    nothing = auroc(these) - auroc(squeezed)
    assert (nothing.value, nothing.interval) == (0.0, (0.0, 0.0))
    low, high = auroc(these).interval
    wider = auroc(these).joint_interval(6)
    assert wider[0] < low
    assert wider[1] > high


def test_correlation_within_labels_does_not_see_what_the_label_explains():
    right = np.arange(400) % 2 == 0
    values = np.random.default_rng(4).random(400)
    labels = Observations(right + values / 10, right, np.arange(400), 400)
    assert rank_correlation(labels, right.astype(float)) is None
    assert rank_correlation(labels, values).value == pytest.approx(1)
    assert rank_correlation(labels, -values).value == pytest.approx(-1)


def test_a_share_of_nothing_is_none():
    assert ratio(np.zeros(3), np.zeros(3)) is None
    assert harmonic_mean(*[Estimate(0.0, np.zeros(3), 3)] * 2).value == 0


@given(ROWS, st.integers(1, 20))
def test_every_score_is_in_one_bin(rows, count):
    bins = score_bins(observed(rows), count)
    assert sum(part.right for part in bins) == sum(right for _, right, _ in rows)
    assert sum(part.wrong for part in bins) == sum(not right for _, right, _ in rows)
    for part in bins:
        if part.mean_score is not None:
            assert part.low - 1e-9 <= part.mean_score <= part.high + 1e-9
    outer = score_bins(observed([(1.5, True, 0), (-0.5, False, 0)]), 4)
    assert (outer[3].right, outer[0].wrong) == (1, 1), "scores beyond 0 and 1"


def test_a_verifier_that_is_as_sure_as_it_is_right_has_no_error():
    sure = observed([(0.75, place > 0, 0) for place in range(4)])
    assert expected_error(sure).value == pytest.approx(0.0)
    assert expected_error(observed([(0.0, True, 0), (1.0, False, 0)])).value == pytest.approx(1.0)
    assert expected_error(observed([])) is None


def test_of_a_run_a_completion_without_an_answer_is_wrong_and_one_without_a_score_left_out():
    calibration = ScoreCalibration()
    done = (LoggedCompletion((0,), None, 0), LoggedCompletion((1,), 0.5, -1))
    for correct in ({}, None):  # without a reference nothing is known
        event = solved(
            "a", 1.0, correct=correct, groups=(LoggedAnswer("1", True),), completions=done
        )
        calibration.add(event)
    assert calibration.without_score == 1
    assert calibration.observations.right.tolist() == [False]
