"""MCTS: what simulations may do in all, and what they see of each other."""

import pytest
from hypothesis import given, settings
from tests.amounts import amount
from tests.search.driving import build, drive, grow, mcts_configs, worlds

from tts.search import Expand, Fate, MctsConfig, Scored
from tts.search.mcts import NodeVisits, Yield, best_child
from tts.search.tree import Node


def places(*scores):
    """Children of one node, each visited once, with its score as its mean."""
    children = [
        NodeVisits(Node((index,), score=score), total=score) for index, score in enumerate(scores)
    ]
    return NodeVisits(Node(()), children=children)


def test_equal_children_are_visited_in_the_order_of_their_paths():
    parent = places(0.5, 0.5, 0.5)
    for child in parent.children:
        assert best_child(parent, 1.0, None) is child
        child.under_way += 1


def test_without_exploration_the_best_mean_is_chosen_and_what_is_spent_is_not():
    parent = places(0.2, 0.9, 0.6)
    for expected in (1, 2, 0):
        child = best_child(parent, 0.0, None)
        assert child is parent.children[expected]
        child.spent = True
    assert best_child(parent, 0.0, None) is None


def test_exploration_prefers_what_was_visited_less():
    parent = places(0.9, 0.5)
    parent.children[0].visits, parent.children[0].total = 9, 8.1
    assert best_child(parent, 0.1, None) is parent.children[0]
    assert best_child(parent, 2.0, None) is parent.children[1]


def test_a_new_child_is_opened_where_it_promises_more_than_those_that_are_there():
    parent = places(0.2, 0.5)
    assert best_child(parent, 0.0, 0.6) is None
    assert best_child(parent, 0.0, 0.5) is parent.children[1], "not where it promises as much"
    parent = places(0.5)
    assert best_child(parent, 0.5, 0.6) is None
    parent.opening = 3
    assert best_child(parent, 0.5, 0.6) is parent.children[0], "those awaited make it less urgent"
    assert best_child(places(), 0.0, 0.0) is None


def test_what_new_children_are_worth_is_learnt_from_all_of_them():
    known = Yield()
    assert known.share == 0.5
    known.see(0.9, 1.0)
    known.see(0.9, 0.5)  # counts no more than its parent
    assert known.share == pytest.approx((0.5 + 0.9 + 0.5) / 2.5)


@settings(max_examples=amount(75, 300), deadline=None)
@given(mcts_configs, worlds)
def test_a_node_has_no_more_than_width_children_unless_all_are_spent(config, world):
    search = build(config)
    starts = [w.node for w in drive(search, world) if isinstance(w, Expand) and w.node[-1] >= 0]
    children = {}
    for node in starts:
        children.setdefault(node[:-1], []).append(node[-1])
    completed = [done.node for done in search.result().completions]
    for parent, indices in children.items():
        assert indices == list(range(len(indices))), "none is repeated"
        if len(indices) > config.width:
            spent = {node[len(parent)] for node in completed if node[: len(parent)] == parent}
            assert len(indices) <= max(config.width, len(spent) + config.parallel)
    parents = {node.path[:-1] for node in search.tree}
    for node in search.tree:  # what has ended and did not come out is surplus, the rest is pruned
        if node.path in parents:
            assert node.fate is Fate.EXPANDED
        elif node.path not in completed:
            assert node.fate in (Fate.PRUNED, Fate.SURPLUS)
    assert not search.expandable()
    assert not list(search.foresee({}))


def test_a_node_gets_another_child_until_one_is_good():
    search = build(MctsConfig(n=1, parallel=1, exploration=0.0))
    grow(search, [0.1, 0.1, 0.1, *[0.9] * 6])
    asked = [node.path for node in search.tree if len(node.path) == 1]
    assert asked == [(0,), (1,), (2,), (3,)]
    assert (3, 0) in search.tree


def test_more_simulations_at_a_time_change_the_tree_and_not_how_many_chains_come_out():
    outcomes = set()
    for parallel in (1, 2, 8):
        search = build(MctsConfig(n=8, width=3, num_iterations=5, parallel=parallel))
        assert [work.node for work in search.ask()] == [(index,) for index in range(parallel)]
        search = build(search.config)
        drive(search, 5)
        assert len(search.result().completions) == 8
        outcomes.add(search.tree.digest())
    assert len(outcomes) > 1


def test_an_expansion_that_waits_for_others_of_its_wave_is_foreseen_on():
    search = build(MctsConfig(n=2, parallel=2))
    grow(search, {(0,): 0.9, (1,): 0.8, (0, 0): 0.7})
    # both simulations have walked on; the child of 0 is ready, that of 1 is not
    assert [g.work.node for g in search.foresee({}) if g.work.node[0] == 0] == [(0, 0, 0)]
    assert {(0, 0), (1, 0)} <= search.expandable()
    search.tell(Scored((1, 0), 0.1))
    assert (0, 0, 0) in {work.node for work in search.ask() if isinstance(work, Expand)}
    assert (1, 0) in search.expandable(), "passed over, but a later simulation may turn to it"
    assert (0, 0) not in search.expandable()
