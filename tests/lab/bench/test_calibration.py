"""A policy from finished runs: the most accurate choices within a budget."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.build.errors import ConfigError
from tts.lab.bench.calibration import (
    SAMPLING,
    Estimate,
    RunOfCells,
    Solved,
    Worth,
    best_budget,
    estimates,
    frontier,
    mean_worth,
    split,
)
from tts.runs.events import LoggedAnswer, LoggedCompletion, ProblemSolved

worths = st.builds(Worth, st.integers(0, 8).map(lambda i: i / 8), st.integers(1, 50).map(float))
bins = st.lists(
    st.dictionaries(st.sampled_from([("dvts", n) for n in (4, 8, 16)]), worths, min_size=1),
    min_size=1,
    max_size=4,
)


@settings(max_examples=200)
@given(bins, st.integers(0, 200))
def test_no_way_within_a_budget_is_more_accurate_than_the_frontier(cells, budget):
    ways = [
        (sum(worth.right for worth in way), sum(worth.tokens for worth in way))
        for way in itertools.product(*(part.values() for part in cells))
    ]
    best = max((right for right, tokens in ways if tokens <= budget), default=None)
    found = [worth.right for worth, _ in frontier(cells) if worth.tokens <= budget]
    assert (max(found) if found else None) == best
    kept = [worth for worth, _ in frontier(cells)]
    assert kept == sorted(kept, key=lambda worth: (worth.tokens, worth.right))


@settings(max_examples=200)
@given(st.lists(st.integers(0, 20).map(lambda i: i / 20), min_size=1, max_size=60))
def test_bins_are_between_the_thresholds_and_none_is_empty(scores):
    known = [Estimate(score, {}) for score in scores]
    thresholds, parts = split(known)
    assert sum(map(len, parts)) == len(known)
    assert all(parts)
    assert len(thresholds) == len(parts) - 1
    assert thresholds == sorted(set(thresholds))
    for place, part in enumerate(parts):
        for estimate in part:
            assert sum(edge <= estimate.mean_score for edge in thresholds) == place


def test_easy_problems_get_less_and_hard_ones_more_than_the_budget():
    hard = {("dvts", 4): Worth(0.0, 4.0), ("dvts", 16): Worth(1.0, 16.0)}
    easy = {("dvts", 4): Worth(1.0, 4.0), ("dvts", 16): Worth(1.0, 16.0)}
    known = [Estimate(score, hard if score < 0.5 else easy) for score in (0.1, 0.2, 0.8, 0.9)]
    found = best_budget({1: known}, 10, 1.0)
    assert [(found.choose(score).strategy, found.choose(score).n) for score in (0.2, 0.8)] == [
        ("dvts", 16),
        ("dvts", 4),
    ]
    with pytest.raises(ConfigError, match="as little as 3 chains"):
        best_budget({1: known}, 3, 1.0)


def solved(scores, right, tokens=10.0, first=2.0):
    """A problem whose chains have these scores; those in `right` have the right answer."""
    event = ProblemSolved(
        t=0.0,
        problem="p",
        answers={},
        correct={"weighted": True},
        any_correct=True,
        reference="5",
        completions=tuple(
            LoggedCompletion((chain, 0), score, int(chain not in right))
            for chain, score in enumerate(scores)
        ),
        groups=(LoggedAnswer("5", True), LoggedAnswer("7", False)),
        nodes=1,
        tree_digest="",
    )
    return Solved(event, tokens, first)


def test_a_block_of_samples_is_judged_with_the_chains_that_it_is_part_of():
    sampled = RunOfCells(None, SAMPLING, (1, 2, 4), {"p": solved([0.9, 0.5, 0.1, 0.3], {0, 3})})
    search = RunOfCells(None, "dvts", (2, 4), {"p": solved([0.2, 0.4, 0.6, 0.8], {2, 3}, 12.0)})
    known = list(estimates(sampled, [search], 2))
    assert [estimate.mean_score for estimate in known] == [0.7, 0.2]
    assert [estimate.worth[SAMPLING, 2].right for estimate in known] == [True, True]
    assert [estimate.worth[SAMPLING, 4].tokens for estimate in known] == [40.0, 40.0]
    # by the average of its two subtrees, and what two samples cost beyond their first steps
    assert known[0].worth["dvts", 2] == Worth(0.5, 2 * 12.0 + 2 * 8.0)
    assert known[0].worth["dvts", 4] == Worth(1.0, 4 * 12.0 + 2 * 8.0)
    assert (SAMPLING, 1) not in known[0].worth


def test_worth_is_a_mean_over_all_estimates():
    known = [Estimate(0.5, {("rebase", 4): Worth(1.0, 8.0)})] * 3
    found = mean_worth(known, 4)["rebase", 4]
    assert math.isclose(found.right, 0.75)
    assert math.isclose(found.tokens, 6.0)
