"""Path scores, ranks and digests of trees."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    for path, stop in (((0,), Stop.STEP), ((0, 0), Stop.END)):
        node = tree.add(path)
        node.thought, node.score = Thought((1,), "a", stop), 0.5
    tree[(0,)].fate = Fate.COMPLETED
    completions = completions_so_far(tree)
    assert [done.node for done in completions] == [(0, 0)]
    assert tree[(0,)].fate is Fate.EXPANDED
