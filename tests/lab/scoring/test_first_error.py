"""ProcessBench's evaluation: cases by hand, and its published rule written once more."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.lab.scoring.first_error import best_threshold, evaluate, find_first_errors, prediction

BY_HAND = [
    # scores of the steps, label, the first step that is not above 0.5
    ([0.9, 0.9], -1, -1),
    ([0.9, 0.4], -1, 1),
    ([0.5, 0.9], -1, 0),
    ([0.51], -1, -1),
    ([0.1], -1, 0),
    ([1.0, 1.0, 1.0], -1, -1),
    ([1.0, 0.0, 1.0], -1, 1),
    ([0.8, 0.7, 0.6], -1, -1),
    ([0.2, 0.9], 0, 0),
    ([0.9, 0.2], 0, 1),
    ([0.9, 0.9], 0, -1),
    ([0.9, 0.2], 1, 1),
    ([0.2, 0.2], 1, 0),
    ([0.9, 0.5, 0.1], 1, 1),
    ([0.9, 0.6, 0.1], 1, 2),
    ([0.9, 0.6, 0.1], 2, 2),
    ([0.9, 0.6, 0.9], 2, -1),
    ([0.0, 0.0, 0.0], 2, 0),
    ([0.0], 0, 0),
    ([1.0], 0, -1),
]
"""Right predictions: 4 of 8 chains without an error, 5 of 12 with one."""


def evaluated(rows, threshold):
    """Both shares and F1 of the predictions with a threshold."""
    predictions = [prediction(scores, threshold) for scores, _ in rows]
    return evaluate(predictions, [label for _, label in rows], np.arange(len(rows)), len(rows))


def first_errors(rows, levels=None):
    scores, labels = zip(*rows, strict=True)
    levels = levels or [None] * len(rows)
    return find_first_errors(scores, labels, np.arange(len(rows)), len(rows), levels)


def published(predictions, labels):
    """As the published programs have it: matches apart by the label, then their harmonic mean."""
    error = [
        guess == label for guess, label in zip(predictions, labels, strict=True) if label != -1
    ]
    clean = [
        guess == label for guess, label in zip(predictions, labels, strict=True) if label == -1
    ]
    first, second = np.mean(error) * 100, np.mean(clean) * 100
    return first, second, 2 * first * second / (first + second) if first + second else 0.0


def test_twenty_cases_by_hand():
    for scores, _, expected in BY_HAND:
        assert prediction(scores, 0.5) == expected
    rows = [(scores, label) for scores, label, _ in BY_HAND]
    erroneous, correct, f1 = evaluated(rows, 0.5)
    assert correct.value == 4 / 8
    assert erroneous.value == 5 / 12
    assert f1.value == pytest.approx(2 * (4 / 8) * (5 / 12) / (4 / 8 + 5 / 12))
    assert first_errors(rows).f1_at_half.value == f1.value


CHAINS = st.lists(
    st.lists(st.integers(0, 10).map(lambda n: n / 10), min_size=1, max_size=5).flatmap(
        lambda scores: st.tuples(st.just(scores), st.integers(-1, len(scores) - 1))
    ),
    min_size=1,
    max_size=20,
)


@given(CHAINS, st.integers(0, 10).map(lambda n: n / 10))
def test_any_predictions_get_the_published_figures(rows, threshold):
    labels = [label for _, label in rows]
    result = evaluated(rows, threshold)
    assert (result is None) == (len({label < 0 for label in labels}) < 2)
    if result is not None:
        predictions = [prediction(scores, threshold) for scores, _ in rows]
        assert [100 * each.value for each in result] == pytest.approx(
            published(predictions, labels)
        )


@given(CHAINS)
def test_no_threshold_has_a_higher_f1_than_the_best(rows):
    scores, labels = zip(*rows, strict=True)
    if len({label < 0 for label in labels}) < 2:
        assert best_threshold(scores, labels) == 0.5
        return
    *_, best = evaluated(rows, best_threshold(scores, labels))
    for threshold in np.arange(-0.05, 1.1, 0.05):
        assert evaluated(rows, threshold)[2].value <= best.value + 1e-12


def drawn(count, shift=0.0, seed=0):
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        size = int(generator.integers(1, 6))
        label = int(generator.integers(-1, size))
        scores = generator.normal(0.7 + shift, 0.12, size)
        if label >= 0:
            scores[label:] -= 0.3
        rows.append((np.clip(scores, 0, 1).tolist(), label))
    return rows


def test_without_a_threshold_each_fold_is_judged_by_that_of_the_others():
    rows = drawn(200)
    result = first_errors(rows)
    assert result.chosen_on == "other problems"
    assert 0.3 < result.threshold < 0.7
    assert result.f1.value <= evaluated(rows, result.threshold)[2].value
    noise = [
        (np.random.default_rng(s).random(3).tolist(), label) for s, (_, label) in enumerate(rows)
    ]
    noise = [(scores, min(label, 2)) for scores, label in noise]
    flattered = evaluated(noise, best_threshold(*zip(*noise, strict=True)))[2].value
    assert first_errors(noise).f1.value < flattered, (
        "a threshold is flattered by what it was chosen on"
    )


def test_the_threshold_is_that_of_gsm8k_where_it_is_among_others():
    gsm8k, other = drawn(150), drawn(150, shift=0.2, seed=1)
    result = first_errors(gsm8k + other, levels=["gsm8k"] * 150 + ["omnimath"] * 150)
    assert result.chosen_on == "gsm8k"
    assert result.threshold == best_threshold(*zip(*gsm8k, strict=True))
    assert list(result.by_level) == ["gsm8k", "omnimath"]
    *_, alone = evaluated(other, result.threshold)
    assert result.by_level["omnimath"].value == pytest.approx(alone.value)
    assert first_errors(gsm8k, levels=["gsm8k"] * 150).chosen_on == "other problems"
