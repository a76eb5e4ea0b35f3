"""Votes: sampled at once, in rounds until they are decided, weighed by confidence."""

import math
import random
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import END, STEP, adaptive_configs, build, drive, grow, worlds

from tts.search import (
    AdaptiveVoteConfig,
    Confidence,
    ConfidenceVoteConfig,
    ConfidenceWatch,
    Expand,
    Fate,
    Generated,
    SampleSearchConfig,
    Scored,
    Stop,
    Thought,
    node_seed,
)
from tts.search.votes import chance_of_reversal
from tts.strategies.catalog import new_search


@pytest.mark.parametrize(
    ("how", "wanted", "score"),
    [("min", [(0,), (0, 0), (0, 0, 0)], 0.2), ("last", [(0, 0, 0)], 0.8)],
)
def test_whole_chains_become_one_node_per_step_scored_as_far_as_that_matters(how, wanted, score):
    search = build(SampleSearchConfig(n=1, agg_strategy=how))
    search.ask()
    search.tell(Generated((0,), STEP + STEP + END))
    assert [work.node for work in search.ask()] == wanted
    for node, each in (((0,), 0.9), ((0, 0), 0.2), ((0, 0, 0), 0.8)):
        assert not search.done
        search.tell(Scored(node, each))
        assert (search.tree[node].score is not None) == (node in wanted)
    (done,) = search.result().completions
    assert (done.text, done.score) == ("a\n\na\n\na", score)


def test_chains_without_scores_come_out_by_path():
    search = build(SampleSearchConfig(n=3, scored=False))
    grow(search, thoughts={(0,): STEP + END, (1,): END, (2,): STEP + END})
    assert [each.node for each in search.result().completions] == [(0, 0), (1,), (2, 0)]


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


LOG_PROBS = st.lists(st.sampled_from([0.0, -0.1, -0.5, -2.0, -9999.0]), max_size=40)


def windows(log_probs, window):
    """The confidences of all windows, by their ends."""
    values = [max(-100.0, each) for each in log_probs]
    return [
        round(sum(values[end - window : end]) / window, 3) for end in range(window, len(values) + 1)
    ]


@settings(max_examples=amount(60, everything=500), deadline=None)
@given(LOG_PROBS, st.integers(1, 8), st.sampled_from([None, -0.3, -1.0]), st.data())
def test_where_a_chain_ends_depends_on_its_tokens_alone(log_probs, window, floor, data):
    watch, kept = ConfidenceWatch(Confidence(window, floor)), 0
    rest = log_probs
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        kept += watch.take(rest[:size])
        rest = rest[size:]
    found = windows(log_probs, window)
    low = [end for end, mean in enumerate(found, start=window) if floor and mean < floor - 1e-9]
    assert kept == (low[0] if low else len(log_probs))
    assert watch.cut == bool(low)
    seen = windows(log_probs[:kept], window)
    if seen:
        assert watch.weakest == pytest.approx(min(seen), abs=1.1e-3)
    elif log_probs:
        mean = sum(max(-100.0, each) for each in log_probs) / len(log_probs)
        assert watch.weakest == pytest.approx(mean, abs=1.1e-3)
    else:
        assert watch.weakest is None


def told(search, path, confidence, stop=Stop.END):
    thought = Thought((1,), rf"\boxed{{{path[0] % 2}}}", stop, confidence=confidence)
    search.tell(Generated(path, (thought,)))


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_the_floor_follows_from_the_warm_up_and_what_is_below_it_does_not_vote(first, then):
    config = ConfidenceVoteConfig(n=10, warm_up=4, keep=0.75, window=5)
    search = new_search(config, lambda node: node_seed(1, "p", node))
    asked = search.ask()
    assert [work.node for work in asked] == [(0,), (1,), (2,), (3,)]
    assert {work.confidence for work in asked} == {Confidence(5, None)}
    for chain in (each for each in first if each < 4):
        told(search, (chain,), [-0.9, -0.4, -0.6, -0.5][chain])
    asked = search.ask()
    assert [work.node[0] for work in asked] == [4, 5, 6, 7, 8, 9]
    assert {work.confidence for work in asked} == {Confidence(5, -0.6)}
    for chain in then:
        cut = chain == 2
        told(search, (4 + chain,), -0.61 if cut else -0.1 * chain, Stop.CUT if cut else Stop.END)
    result = search.result()
    order = [(4,), (5,), (1,), (7,), (3,), (8,), (2,), (9,)]
    scores = {done.node: done.score for done in result.completions}
    assert list(scores) == sorted(order, key=lambda node: (-scores[node], node))
    assert scores.keys() == set(order) - {(8,)} | {(8,)}
    assert scores[(3,)] == pytest.approx(math.exp(-0.5))
    assert {node.path for node in result.tree if node.fate is Fate.PRUNED} == {(0,), (6,)}
