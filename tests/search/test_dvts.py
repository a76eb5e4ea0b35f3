"""Diverse verifier tree search: independent subtrees."""

from itertools import permutations

import pytest
from tests.search.driving import END, STEP, build, grow

from tts.search import Calibration, DvtsConfig, Fate, Generated, Scored, Stop, Thought


def test_subtrees_of_dvts_do_not_wait_for_one_another():
    search = build(DvtsConfig(n=8, beam_width=2, num_iterations=3))
    assert [work.node for work in search.ask()] == [(child,) for child in range(8)]
    for child in (4, 5):
        search.tell(Generated((child,), STEP))
    assert grow(search, {(5,): 0.75, (4,): 0.25})[:4] == [(4,), (5,), (5, 0), (5, 1)]


@pytest.mark.parametrize("order", [*permutations([(0, 0), (0, 1)])])
def test_a_step_without_text_keeps_a_product_that_the_best_step_would_lower(order):
    """It wins where the best probability is less than 1, whichever score comes first."""
    search = build(DvtsConfig(n=2, beam_width=2, agg_strategy="prod"))
    search.tree.calibration = Calibration.of([(0, 0), (1, 0.5)])
    grow(search, (1.0, 0.0), {(0, 1): (Thought((), "", Stop.STEP),)})
    for node in order:
        search.tell(Scored(node, 1.0))
    assert [search.tree[node].fate for node in sorted(order)] == [Fate.COMPLETED] * 2


def test_nothing_is_expanded_below_a_candidate_that_an_ended_one_outranks():
    search = build(DvtsConfig(n=3, beam_width=3))
    grow(search, {(0,): 0.9, (1,): 0.5}, thoughts={(0,): END})
    assert search.hints.expandable() == {(2,)}, "its score may still be the best"
