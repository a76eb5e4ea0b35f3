"""Values and trees: path scores, ranks, digests, calibrations, the protocol."""

import math
import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import END, STEP, answer, build, configs, grow, worlds

from tts.search import (
    Calibration,
    SampleSearchConfig,
    Scored,
    ScoreMap,
    Search,
    SearchConfig,
    SearchResult,
    node_seed,
    unit_interval,
)
from tts.search.calibration import isotonic
from tts.search.cut_short import completions_so_far
from tts.search.thought import Fate, Stop, Thought, aggregate, quantise
from tts.search.tree import Tree

scores = st.integers(1, 10**4).map(lambda units: quantise(units * 1e-4))


def chain(*steps):
    """A tree of one chain, and its end: texts with their scores, None for a step not scored."""
    tree, path = Tree(), ()
    for text, score in steps:
        path = (*path, 0)
        tree.add(path).thought = Thought((1,), text, Stop.STEP)
        if score is not None:
            tree.lock_score(path, score)
    return tree, path


@given(st.lists(scores, min_size=1, max_size=60))
def test_a_product_is_right_to_its_digits_however_small(steps):
    exact = math.prod(map(Fraction, steps))
    product = aggregate(steps, "prod")
    assert product > 0
    assert abs(Fraction(product) / exact - 1) < Fraction(10) ** -11


@pytest.mark.parametrize(
    ("how", "score"),
    [("last", 0.35), ("min", 0.35), ("prod", 2.09913964297e-14), ("mean", 0.35)],
)
def test_thirty_steps_of_0_35(how, score):
    assert aggregate([0.35] * 30, how) == score


@given(st.lists(scores, min_size=1, max_size=8), scores, st.sampled_from(["min", "prod", "mean"]))
def test_an_empty_last_step_leaves_the_path_score_as_it_is(steps, last, how):
    tree, end = chain(*((f"step {score}", score) for score in steps), (" \n", last))
    assert tree.path_score(end, how) == tree.path_score(end[:-1], how)
    assert tree.path_score(end, "last") == last


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", " ", ""]), st.none() | scores), min_size=1),
    scores,
)
def test_a_path_has_at_most_one_score_per_step_with_text(steps, last):
    tree, end = chain(*steps, ("c", last))
    counted = [tree.value(node) for node in tree.counted_nodes(end)]
    assert counted[-1] == last
    assert len(counted) <= sum(bool(text.strip()) for text, _ in steps) + 1
    with_text = [score for text, score in steps if text.strip() and score is not None]
    assert not {*with_text} - {*counted}


@pytest.mark.parametrize(
    ("steps", "counted"),
    [
        ([("a", 0.5), ("b", None), ("", 0.25), ("", 0.125)], [0.5, 0.25]),
        ([(" ", 0.5), ("\n", 0.25)], [0.5]),
    ],
)
def test_an_empty_step_stands_in_for_one_that_was_not_scored(steps, counted):
    tree, end = chain(*steps)
    assert [tree.value(node) for node in tree.counted_nodes(end)] == counted


def test_ranks_go_by_path_score_then_last_score_then_path():
    tree = Tree()
    for path, score in (((0,), 0.5), ((0, 0), 0.6), ((0, 1), 0.9), ((0, 2), 0.9), ((1,), 0.6)):
        tree.add(path).thought = Thought((1,), "a", Stop.STEP)
        tree.lock_score(path, score)
    ranked = sorted([(0, 0), (0, 1), (0, 2), (1,)], key=lambda path: tree.rank(path, "min"))
    assert ranked == [(1,), (0, 1), (0, 2), (0, 0)]


def test_the_digest_of_a_tree_is_what_it_was_in_every_version():
    """Runs are compared by digests that older versions have written down."""
    tree = Tree()
    for path, ids, stop, fate in (
        ((0,), (5, 17), Stop.STEP, Fate.EXPANDED),
        ((0, 0), (3,), Stop.END, Fate.COMPLETED),
        ((0, 2), (), Stop.LENGTH, Fate.PRUNED),
        ((1,), (5, 17, 2), Stop.STEP, Fate.PRUNED),
        ((0, 1), (9,), Stop.STEP, Fate.SURPLUS),
    ):
        node = tree.add(path)
        node.thought, node.fate = Thought(ids, "not part of it", stop), fate
    tree.add((2,))
    tree.lock_score((0, 0), 0.25)  # nor are scores
    assert tree.digest() == "c6668dc682538f8195bee80b354433e9a1147f5f6706e1e5e11cd4fb5876a96c"


def test_a_completed_chain_from_which_another_goes_on_is_no_end():
    tree = Tree()
    for path in ((0,), (0, 0), (1,), (1, 0)):
        node = tree.add(path)
        stop = Stop.END if path == (0, 0) else Stop.STEP
        node.thought, node.score = Thought((1,), "a", stop), 0.5
    tree[(0,)].fate, tree[(1,)].fate = Fate.COMPLETED, Fate.PRUNED
    completions = completions_so_far(tree)
    assert [done.node for done in completions] == [(0, 0)]
    assert [tree[(path,)].fate for path in (0, 1)] == [Fate.EXPANDED, Fate.PRUNED]


def test_a_tree_shows_a_line_per_node_with_or_without_a_score():
    tree = Tree()
    tree.add((0,)).thought = Thought((1,), "a\n b", Stop.STEP)
    tree.lock_score((0,), 0.5)
    tree.add((0, 0))
    lines = ["Tree of 2 nodes", "0.5000 open        a b", "       open          ..."]
    assert repr(tree).splitlines() == lines


def test_seeds_are_stable_and_distinct_and_their_numbers_uniform():
    assert node_seed(0, "p", (0,)) == 2606024652530248270
    seeds = {
        node_seed(run, problem, node)
        for run in (0, 1)
        for problem in ("p", "q")
        for node in ((0,), (1,), (0, 1), (0, 0, 1), (11,), (1, 1), (-1, 1), (0, -1))
    }
    assert len(seeds) == 32
    assert all(0 <= seed < 2**63 for seed in seeds)
    for node in ((), (0,), (3, 1)):
        first, *others = (node_seed(0, "p", (*node, at), consecutive=True) for at in range(5))
        assert others == [(first + at) % 2**63 for at in range(1, 5)]
        assert first == node_seed(0, "p", node)
    assert node_seed(0, "p", (-1, 4), consecutive=True) == node_seed(0, "p", (-1, 4))
    drawn = sorted(unit_interval(node_seed(1, "p", (-1, i))) for i in range(2000))
    assert all(abs(number - i / 2000) < 0.04 for i, number in enumerate(drawn))
    assert 0 < unit_interval(0) < unit_interval(2**63 - 1) == 1


NOTHING = SearchResult((), Tree())


class Least(Search):
    """A search of the three methods that every search has; it is done when it is told anything."""

    told = None

    def ask(self):
        return []

    def tell(self, result):
        self.told = result

    def result(self):
        return NOTHING if self.told else None


def test_ask_tell_and_result_are_all_that_a_search_needs():
    search = Least()
    assert (search.done, search.tree) == (False, None)
    assert search.hints.needs() == {}
    assert list(search.hints.guess({})) == []
    assert (0,) not in search.hints.expandable()
    search.tell("anything")
    assert search.done


@pytest.mark.parametrize("missing", ["ask", "tell", "result"])
def test_a_search_without_one_of_them_cannot_be_made(missing):
    methods = {name: getattr(Least, name) for name in ("ask", "tell", "result") if name != missing}
    with pytest.raises(TypeError, match=missing):
        type("Lacking", (Search,), methods)()


def test_parameters_that_do_not_make_a_search_cannot_be_made():
    with pytest.raises(TypeError, match="new_search"):
        SearchConfig(n=2)


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
