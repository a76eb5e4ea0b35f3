"""Calibration: the probabilities that scores stand for, used by every search."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import END, STEP, answer, build, configs, grow, worlds

from tts.search import Calibration, SampleSearchConfig, Scored, ScoreMap, isotonic
from tts.search.tree import Tree

DOUBLED = Calibration.of([(0.0, 0.0), (0.5, 1.0), (1.0, 1.0)])
"""Maps half scores to whole ones."""


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 9)), min_size=1, max_size=12))
def test_pooling_keeps_means_and_never_falls(pairs):
    values, weights = zip(*pairs, strict=True)
    rising = isotonic(values, weights)
    assert all(one <= other + 1e-12 for one, other in pairwise(rising))
    before = sum(value * weight for value, weight in pairs)
    assert sum(v * w for v, w in zip(rising, weights, strict=True)) == pytest.approx(before)
    if list(values) == sorted(values):
        assert rising == pytest.approx(list(values))


def test_lines_are_drawn_between_points_and_end_values_hold_beyond_them():
    line = ScoreMap(((0.2, 0.1), (0.4, 0.5), (0.8, 0.7)))
    assert [line(score) for score in (0.0, 0.2, 0.3, 0.6, 0.8, 1.0)] == [
        0.1,
        0.1,
        0.3,
        0.6,
        0.7,
        0.7,
    ]


def test_last_steps_and_inner_steps_have_maps_of_their_own():
    tree = Tree()
    tree.calibration = Calibration.of([(0, 0.2), (1, 0.9)], [(0, 0.4), (1, 0.6)])
    inner, last = tree.add((0,)), tree.add((0, 0))
    inner.thought, last.thought = STEP[0], END[0]
    tree.lock_score((0,), 1.0)
    tree.lock_score((0, 0), 1.0)
    assert (tree.value(inner), tree.value(last), tree.max_value) == (0.6, 0.9, 0.9)
    completion = tree.completion((0, 0), "mean")
    assert (completion.score, completion.probability, completion.weight) == (1.0, 0.75, 0.75)


def test_without_a_calibration_a_completion_has_its_score_alone():
    search = build(SampleSearchConfig(n=1))
    grow(search, scores=(0.2,), thoughts=END)
    (completion,) = search.result().completions
    assert (completion.score, completion.probability, completion.weight) == (0.2, None, 0.2)


@settings(max_examples=amount(60, 500), deadline=None)
@given(configs, worlds)
def test_every_search_goes_by_probabilities(config, world):
    """Half scores that are mapped to whole ones grow the tree of these."""
    plain, halved = build(config), build(config)
    halved.tree.calibration = DOUBLED

    def run(search, scale):
        pending = search.ask()
        while pending and not search.done:
            result = answer(pending.pop(0), world)
            if isinstance(result, Scored):
                result = replace(result, score=round(result.score, 3) * scale)
            search.tell(result)
            pending += search.ask()
            needs = search.hints.needs()
            pending = [work for work in pending if needs.get(work.node, True)]
        return search.result()

    one, other = run(plain, 1.0), run(halved, 0.5)
    assert one.tree.digest() == other.tree.digest()
    assert [(each.node, each.weight) for each in one.completions] == [
        (each.node, each.weight) for each in other.completions
    ]


MONOTONE = {
    "squeezed": lambda score: 0.4 + 0.2 * score,
    "squared": lambda score: score * score,
}


@settings(max_examples=amount(60, 500), deadline=None)
@given(configs, worlds, st.sampled_from(sorted(MONOTONE)))
def test_trees_that_a_monotone_map_of_the_scores_leaves_as_they_are(config, world, name):
    """The claims of docs/reference/strategies.md, "Scale"."""
    if not scale_free(config, name):
        return
    trees = []
    for scale in (lambda score: score, MONOTONE[name]):
        search = build(config)
        pending = search.ask()
        order = random.Random(world)
        while pending and not search.done:
            result = answer(pending.pop(order.randrange(len(pending))), world)
            if isinstance(result, Scored):
                result = replace(result, score=scale(round(result.score, 1)))
            search.tell(result)
            pending += search.ask()
            needs = search.hints.needs()
            pending = [work for work in pending if needs.get(work.node, True)]
        trees.append(search.result().tree.digest())
    assert trees[0] == trees[1]


def scale_free(config, name):
    """Whether a strategy's tree is claimed to be the same on the scale of this name."""
    kind = type(config).__name__
    if kind in ("BeamSearchConfig", "DvtsConfig"):
        return config.agg_strategy in ("last", "min")
    if kind == "SampleSearchConfig":
        return True
    return kind == "MctsConfig" and name == "squeezed" and config.agg_strategy != "prod"
