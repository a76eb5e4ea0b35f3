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
from tts.search.votes import chance_of_reversal

weights = st.one_of(st.integers(0, 40), st.floats(0, 40).map(lambda weight: round(weight, 4)))


@given(weights, weights)
def test_a_vote_more_adds_what_it_adds_to_the_beta_distribution(one, other):
    """I(a, b + 1) = I(a, b) + G(a + b) / (G(a) G(b + 1)) * 2^-(a + b) at 1/2, also of scores."""
    a, b = max(one, other) + 2.5, min(one, other) + 1
    added = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b + 1)) / 2 ** (a + b)
    before = chance_of_reversal(a - 1, b - 1)
    assert chance_of_reversal(a - 1, b) == pytest.approx(before + added, rel=1e-9)


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
def test_it_samples_the_first_chains_of_a_vote_that_samples_all_at_once(config, world, shuffle):
    search, full = build(config), build(SampleSearchConfig(n=config.n, scored=config.scored))
    drive(search, world, random.Random(shuffle))
    drive(full, world)
    used = len(search.result().completions)
    assert used == config.n or (0 < used < config.n and used % config.batch == 0)
    assert used == config.n or config.threshold < 1
    chains = {node.path: node.thought for node in full.tree if node.path[0] < used}
    assert chains == {node.path: node.thought for node in search.tree}


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
