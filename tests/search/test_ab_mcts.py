"""AB-MCTS: which trials are in flight, and what each of them knows."""

from examples.ab_mcts import AbMctsConfig, Branching, back_up, walk
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import ab_mcts_configs, build, drive, may_stop_early, worlds

from tts.search import Expand, Generated, Scored, Stop, Thought

CHAIN = (Thought((1,), "a\n\n", Stop.STEP), Thought((2,), "b", Stop.END))


def chains(search):
    return [work.node for work in search.ask() if isinstance(work, Expand)]


def test_a_trial_begins_when_the_first_one_in_flight_is_told():
    search = build(AbMctsConfig(n=6, parallel=3))
    assert chains(search) == [(0,), (1,), (2,)], "nothing is known, so all are from the root"
    for start in ((1,), (2,)):
        search.tell(Generated(start, CHAIN))
        search.tell(Scored((*start, 0), 0.9))
        assert chains(search) == [], "trial 3 may not know of these before it knows of trial 0"
    search.tell(Generated((0,), CHAIN))
    search.tell(Scored((0, 0), 0.4))
    assert len(chains(search)) == 3, "all three are told, each lets one begin"


@settings(max_examples=amount(50, 200), deadline=None)
@given(ab_mcts_configs, worlds)
def test_every_request_completes_a_chain_and_none_is_made_beyond_n(config, world):
    search = build(config)
    expansions = [work for work in drive(search, world) if isinstance(work, Expand)]
    assert all(work.whole for work in expansions)
    assert len(expansions) <= config.n
    assert len({work.seed for work in expansions}) == len(expansions)
    if not may_stop_early(config):
        assert len(expansions) == config.n


@settings(max_examples=amount(50, 200), deadline=None)
@given(st.integers(2, 12), worlds)
def test_no_chain_branches_off_below_an_end_or_a_blank_step(n, world):
    search = build(AbMctsConfig(n=n, parallel=2))
    drive(search, world)
    ends = {done.node for done in search.result().completions}
    for node in search.tree:
        if node.path[-1] > 0 and len(node.path) > 1:  # a later child than the one it came with
            above = [search.tree[node.path[:depth]] for depth in range(1, len(node.path))]
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
    assert walk(root, lambda belief: 0.0) == [root]
    way = walk(root, lambda belief: -1.0 if belief is root.wider else belief.mean)
    assert [place.path for place in way] == [(), (1,)], "deeper as 0 > -1; below 1 it is 0.9 > 0"
    back_up([root, root.children[1], root.children[1].children[0]], [], 0.0)
    way = walk(root, lambda belief: -1.0 if belief is root.wider else belief.mean)
    assert [place.path for place in way] == [(), (2,)], "by all chains through a child"
