"""What is believed of a mean, and the draws from it."""

import math
import random
import statistics

import pytest
from examples.ab_mcts import Posterior, student_t
from hypothesis import given
from hypothesis import strategies as st

from tts.search.thought import node_seed, unit_interval

values = st.lists(st.floats(0, 1), max_size=30)
numbers = st.floats(1e-9, 1)


def believed(seen) -> Posterior:
    belief = Posterior()
    for value in seen:
        belief.see(value)
    return belief


@given(values)
def test_values_are_taken_in_one_by_one_as_if_at_once(seen):
    belief = believed(seen)
    if seen:
        assert belief.mean == pytest.approx(statistics.fmean(seen))
        assert belief.squares == pytest.approx(len(seen) * statistics.pvariance(seen), abs=1e-9)
    assert belief.location == pytest.approx(math.fsum(seen) / (1 + len(seen)))
    assert belief.freedom == 1 + len(seen)
    assert belief.scale > 0


def test_a_belief_worked_by_hand():
    # mean 0.5, squares 0.18; variance (0.1 + 0.18 + 2/3 * 0.25) / 3 = 0.14889, over a weight of 3
    belief = believed([0.8, 0.2])
    assert belief.location == pytest.approx(1 / 3)
    assert belief.scale == pytest.approx(math.sqrt(0.44667 / 9), rel=1e-4)


@given(values, numbers, numbers)
def test_a_draw_lies_as_far_from_the_location_as_the_scale_says(seen, first, second):
    belief = believed(seen)
    distance = belief.draw(first, second) - belief.location
    expected = belief.scale * student_t(belief.freedom, first, second)
    assert distance == pytest.approx(expected, rel=1e-6, abs=1e-9)


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


def test_the_numbers_of_seeds_are_uniform():
    drawn = sorted(unit_interval(node_seed(1, "p", (-1, i))) for i in range(2000))
    assert drawn[0] > 0
    assert drawn[-1] <= 1
    assert all(abs(number - i / 2000) < 0.04 for i, number in enumerate(drawn))
    assert unit_interval(0) > 0
    assert unit_interval(2**63 - 1) == 1
