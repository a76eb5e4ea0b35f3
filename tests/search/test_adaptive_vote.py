"""Adaptive sampling: when the vote counts as decided, and what comes out."""

import math
import random
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import adaptive_configs, build, drive, worlds

from tts.search import (
    AdaptiveVoteConfig,
    Expand,
    Generated,
    SampleSearchConfig,
    Scored,
    Stop,
    Thought,
)
from tts.search.adaptive_vote import chance_of_reversal

weights = st.one_of(st.integers(0, 40), st.floats(0, 40).map(lambda weight: round(weight, 4)))


@settings(max_examples=amount(200, 2000), deadline=None)
def confidence(first: float, second: float) -> float:
    """The share of the density of Beta(first + 1, second + 1) above 1/2, by Simpson's rule.

    With p = sin(t)^2 the density has no steep ends.
    """
    if first <= second:
        return 0.5

    def area(low: float, high: float, slices: int = 600) -> float:
        step = (high - low) / slices
        angles = [low + i * step for i in range(slices + 1)]
        heights = [
            abs(math.sin(t)) ** (2 * first + 1) * abs(math.cos(t)) ** (2 * second + 1)
            for t in angles
        ]
        inner = 4 * math.fsum(heights[1:-1:2]) + 2 * math.fsum(heights[2:-1:2])
        return step / 3 * (heights[0] + inner + heights[-1])

    above = area(math.pi / 4, math.pi / 2)
    return above / (area(0, math.pi / 4) + above)


@given(weights, weights)
def test_the_probability_is_that_of_the_paper_by_numerical_integration(one, other):
    first, second = max(one, other), min(one, other)
    expected = 1 - confidence(first, second)
    assert chance_of_reversal(first, second) == pytest.approx(expected, abs=1e-7)


@given(st.integers(0, 400), st.integers(0, 400))
def test_of_whole_votes_the_probability_is_a_binomial_sum(one, other):
    first, second = max(one, other), min(one, other)
    flips = first + second + 1
    expected = sum(comb(flips, heads) for heads in range(first + 1, flips + 1)) / 2**flips
    assert chance_of_reversal(first, second) == pytest.approx(expected, rel=1e-9)


def test_a_runner_up_that_may_be_larger_leaves_it_open():
    assert chance_of_reversal(0, 0) == chance_of_reversal(2, 3.5) == 0.5


@settings(max_examples=amount(100, 1000), deadline=None)
@given(adaptive_configs, worlds, st.integers(0, 10**6))
def test_it_stops_after_the_first_round_that_decides_the_vote(config, world, shuffle):
    search, full = build(config), build(SampleSearchConfig(n=config.n, scored=config.scored))
    drive(search, world, random.Random(shuffle))
    drive(full, world)
    used = len(search.result().completions)
    assert used == config.n or used % config.batch == 0
    assert 0 < used <= config.n
    # the same chains as those of a vote that samples all at once
    chains = {node.path: node.thought for node in full.tree if node.path[0] < used}
    assert chains == {node.path: node.thought for node in search.tree}
    if config.threshold == 1:
        assert used == config.n


def answered(config, texts, scores=()):
    """How many chains are sampled if chain i ends in texts[i], and is scored scores[i]."""
    search = build(config)
    while not search.done:
        for work in search.ask():
            if isinstance(work, Expand):
                text = rf"\boxed{{{texts[work.node[0]]}}}"
                search.tell(Generated(work.node, (Thought((1,), text, Stop.END),)))
            else:
                search.tell(Scored(work.node, scores[work.node[0]]))
    return len(search.result().completions)


@pytest.mark.parametrize(
    ("answers", "threshold", "used"),
    [
        ("5555555555555555", 0.95, 4),  # 4 to 0: 31/32
        ("5575555255555555", 0.95, 8),  # 3 to 1: 13/16, then 6 to 1: 247/256
        ("5575555555555555", 0.8125, 4),  # the threshold itself is enough
        ("5575555555555555", 0.8126, 8),
        ("1234567812345678", 0.95, 16),
        ("5555555555555555", 0.97, 8),
        ("5555555555555555", 1.0, 16),
    ],
)
def test_known_votes(answers, threshold, used):
    config = AdaptiveVoteConfig(n=16, scored=False, threshold=threshold)
    assert answered(config, answers) == used


def test_a_vote_of_low_scores_takes_longer():
    config = AdaptiveVoteConfig(n=16)
    assert answered(config, "5" * 16, [1.0] * 16) == 4
    assert answered(config, "5" * 16, [0.5] * 16) == 8
    assert answered(config, "5" * 16, [0.01] * 16) == 16


def test_forms_that_may_be_equal_count_against_the_leader():
    config = AdaptiveVoteConfig(n=8, scored=False, threshold=0.8)
    assert answered(config, ["5", "5", "5", "7"] * 2) == 4
    assert answered(config, ["5", "5", r"\frac{4}{2}", "2"] * 2) == 8
