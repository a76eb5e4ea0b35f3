"""Votes by confidence: where a chain's weakest window ends it, and who votes."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount

from tts.search import (
    Confidence,
    ConfidenceVoteConfig,
    ConfidenceWatch,
    Fate,
    Generated,
    Stop,
    Thought,
    node_seed,
)
from tts.strategies.catalog import new_search

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
