"""MCTS: choices, values and waves; beside AB-MCTS."""

import math
import random
import statistics
from dataclasses import replace

import pytest
from examples.ab_mcts import AbMctsConfig, Branching, Posterior, back_up, student_t, walk
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import (
    END,
    STEP,
    ab_mcts_configs,
    answer,
    build,
    drive,
    grow,
    mcts_configs,
    worlds,
)

from tts.search import Expand, Fate, Generated, MctsConfig, Scored
from tts.search.mcts import NodeVisits, SeenValues, best_child
from tts.search.tree import Node


def itself(total, visits):
    return total


def places(*scores):
    """Children of one node, each visited once, with its score as its mean."""
    children = [
        NodeVisits(Node((index,), score=score), total=score) for index, score in enumerate(scores)
    ]
    return NodeVisits(Node(()), children=children)


def test_equal_children_are_visited_in_the_order_of_their_paths():
    parent = places(0.5, 0.5, 0.5)
    for child in parent.children:
        assert best_child(parent, 1.0, itself, None) is child
        child.under_way += 1


def test_without_exploration_the_best_mean_is_chosen_and_what_is_exhausted_is_not():
    parent = places(0.2, 0.9, 0.6)
    for expected in (1, 2, 0):
        child = best_child(parent, 0.0, itself, None)
        assert child is parent.children[expected]
        child.exhausted = True
    assert best_child(parent, 0.0, itself, None) is None


def test_exploration_prefers_what_was_visited_less():
    parent = places(0.9, 0.5)
    parent.children[0].visits, parent.children[0].total = 9, 8.1
    assert best_child(parent, 0.1, itself, None) is parent.children[0]
    assert best_child(parent, 2.0, itself, None) is parent.children[1]


def test_a_new_child_is_opened_where_it_promises_more_than_those_that_are_there():
    parent = places(0.2, 0.5)
    assert best_child(parent, 0.0, itself, 0.6) is None
    assert best_child(parent, 0.0, itself, 0.5) is parent.children[1], (
        "not where it promises as much"
    )
    parent = places(0.5)
    assert best_child(parent, 0.5, itself, 0.6) is None
    parent.opening = 3
    assert best_child(parent, 0.5, itself, 0.6) is parent.children[0], (
        "those awaited make it less urgent"
    )
    assert best_child(places(), 0.0, itself, 0.0) is None


def test_a_new_child_is_expected_to_have_a_share_of_its_parents_value():
    values = SeenValues()
    for value in (0.2, 0.4, 0.6, 0.6):
        values.extend(value)
    values.compare(0.4, None)  # half of the range, below the root, which counts as the most seen
    values.compare(0.6, 0.4)  # counts no more than its parent
    assert values.prospect(None) == pytest.approx((0.5 + 0.5 + 0.5) / (1 + 1 + 0.5))
    assert values.prospect(0.4) == pytest.approx(values.prospect(None) / 2)


@settings(max_examples=amount(40, 200), deadline=None)
@given(st.integers(1, 8), st.integers(1, 4), worlds)
def test_as_long_as_all_values_are_equal_every_simulation_is_a_chain_of_its_own(n, parallel, world):
    search = build(MctsConfig(n=n, parallel=parallel, width=2))
    pending = search.ask()
    rng = random.Random(world)
    while not search.done:
        result = answer(pending.pop(rng.randrange(len(pending))), world)
        search.tell(replace(result, score=0.5) if isinstance(result, Scored) else result)
        pending += search.ask()
    assert all(node.path[1:] == (0,) * (len(node.path) - 1) for node in search.tree)
    completions = search.result().completions
    assert len(completions) == len({completion.node[0] for completion in completions}) == n


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
    assert not search.hints.expandable()
    assert not list(search.hints.guess({}))


def test_a_node_gets_another_child_until_one_is_good():
    search = build(MctsConfig(n=2, parallel=2, exploration=0.0))
    bad, good = {(0,): 0.1, (1, 0): 0.1, (1, 1): 0.1}, {(1,): 0.9, (1, 2): 0.9, (1, 3): 0.8}
    grow(search, bad | good)
    below = [node.path for node in search.tree if len(node.path) == 2]
    assert below == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert (1, 2, 0) in search.tree


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


def test_an_expansion_that_waits_for_others_of_its_wave_is_guessed_on():
    search = build(MctsConfig(n=3, parallel=3, width=3))
    grow(search, {(0,): 0.9, (1,): 0.9, (2,): 0.1, (0, 0): 0.7, (0, 1): 0.2})
    # all simulations have walked on; the children of 0 are ready, that of 1 is not
    assert [g.work.node for g in search.hints.guess({}) if g.work.node[0] == 0] == [(0, 0, 0)]
    assert {(0, 0), (1, 0)} <= search.hints.expandable()
    search.tell(Scored((1, 0), 0.1))
    assert (0, 0, 0) in {work.node for work in search.ask() if isinstance(work, Expand)}
    assert (1, 0) in search.hints.expandable(), "passed over, but a later simulation may turn to it"
    assert (0, 0) not in search.hints.expandable()


def test_a_trial_begins_when_the_first_one_in_flight_is_told():
    search = build(AbMctsConfig(n=6, parallel=3))

    def chains():
        return [work.node for work in search.ask() if isinstance(work, Expand)]

    assert chains() == [(0,), (1,), (2,)], "nothing is known, so all are from the root"
    for start in ((1,), (2,)):
        search.tell(Generated(start, STEP + END))
        search.tell(Scored((*start, 0), 0.9))
        assert chains() == [], "trial 3 may not know of these before it knows of trial 0"
    search.tell(Generated((0,), STEP + END))
    search.tell(Scored((0, 0), 0.4))
    assert len(chains()) == 3, "all three are told, each lets one begin"


@settings(max_examples=amount(50, 200), deadline=None)
@given(ab_mcts_configs, worlds)
def test_each_request_completes_one_of_n_chains_and_none_branches_off_below_an_end(config, world):
    search = build(config)
    expansions = [work for work in drive(search, world) if isinstance(work, Expand)]
    assert all(work.whole for work in expansions)
    assert len({work.seed for work in expansions}) == len(expansions) == config.n
    ends = {done.node for done in search.result().completions}
    for node in search.tree:
        if node.path[-1] > 0 and len(node.path) > 1:  # a later child than the one it came with
            above = search.tree.chain(node.path)[:-1]
            assert not any(parent.path in ends or parent.thought.blank for parent in above)


def test_a_value_is_told_to_all_choices_on_the_way():
    root = Branching(())
    back_up([root], [(0,), (0, 0)], 0.8)
    first = root.children[0]
    back_up([root, first], [(0, 1)], 0.2)
    assert (root.wider.count, root.deeper.count) == (1, 1)
    assert root.deeper.mean == 0.2
    assert (first.value.count, first.wider.count, first.deeper.count) == (2, 2, 0)
    assert first.value.mean == 0.5
    assert [child.path for child in first.children] == [(0, 0), (0, 1)]
    assert [child.value.mean for child in first.children] == [0.8, 0.2]


def test_a_draw_decides_wider_first_and_then_the_smaller_path():
    root = Branching(())
    for index, value in enumerate((0.5, 0.9, 0.9)):
        back_up([root], [(index,), (index, 0)], value)

    def below(belief):
        return -1.0 if belief is root.wider else belief.mean

    assert walk(root, lambda belief: 0.0) == [root]
    assert [place.path for place in walk(root, below)] == [(), (1,)], "below 1 it is 0.9 > 0"
    back_up([root, root.children[1], root.children[1].children[0]], [], 0.0)
    assert [place.path for place in walk(root, below)] == [(), (2,)], (
        "by all chains through a child"
    )


@given(st.lists(st.floats(0, 1), max_size=30), st.floats(1e-9, 1), st.floats(1e-9, 1))
def test_a_belief_is_that_of_all_values_and_its_draws_lie_as_far_off_as_it_says(
    seen, first, second
):
    belief = Posterior()
    for value in seen:
        belief.see(value)
    if seen:
        assert belief.mean == pytest.approx(statistics.fmean(seen))
        assert belief.squares == pytest.approx(len(seen) * statistics.pvariance(seen), abs=1e-9)
    assert belief.location == pytest.approx(math.fsum(seen) / (1 + len(seen)))
    assert belief.freedom == 1 + len(seen)
    assert belief.scale > 0
    distance = belief.draw(first, second) - belief.location
    expected = belief.scale * student_t(belief.freedom, first, second)
    assert distance == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_a_belief_worked_by_hand():
    # mean 0.5, squares 0.18; variance (0.1 + 0.18 + 2/3 * 0.25) / 3 = 0.14889, over a weight of 3
    belief = Posterior()
    belief.see(0.8)
    belief.see(0.2)
    assert belief.location == pytest.approx(1 / 3)
    assert belief.scale == pytest.approx(math.sqrt(0.44667 / 9), rel=1e-4)


@pytest.mark.parametrize(
    ("freedom", "quantiles"),
    # of Student's t distribution at 0.75, 0.9 and 0.975, from its usual table
    [
        (1, [1.000, 3.078, 12.706]),
        (2, [0.816, 1.886, 4.303]),
        (5, [0.727, 1.476, 2.571]),
        (30, [0.683, 1.310, 2.042]),
    ],
)
def test_draws_have_the_quantiles_of_the_t_distribution(freedom, quantiles):
    rng = random.Random(3)
    drawn = [student_t(freedom, 1 - rng.random(), rng.random()) for _ in range(40_000)]
    for share, quantile in zip([0.75, 0.9, 0.975], quantiles, strict=True):
        below = sum(value <= quantile for value in drawn) / len(drawn)
        assert below == pytest.approx(share, abs=0.01)
