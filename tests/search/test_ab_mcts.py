"""AB-MCTS, the example: which trials are in flight, what each of them knows, and its draws."""

import math
import random
import statistics

import pytest
from examples.ab_mcts import AbMctsConfig, Branching, Posterior, back_up, student_t, walk
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import END, STEP, ab_mcts_configs, build, drive, worlds

from tts.search import Expand, Generated, Scored


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
