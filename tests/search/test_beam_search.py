"""Beam search: what it keeps, and what it prunes without a score."""

import random

from hypothesis import given, settings
from tests.amounts import amount
from tests.search.driving import END, STEP, beam_configs, build, drive, grow, worlds

from tts.search import BeamSearchConfig, Fate, Generated, Scored
from tts.search.step_hints import EarlyPruner, best_rank, cutoff
from tts.search.step_search import Pruner


def test_ties_are_broken_by_path_not_by_arrival():
    search = build(BeamSearchConfig(n=4, beam_width=4, num_iterations=2))
    for work in reversed(search.ask()):
        search.tell(Generated(work.node, STEP))
    for work in reversed(search.ask()):
        search.tell(Scored(work.node, 0.5 + work.node[0] * 1e-6))  # float noise
    assert {work.node[0] for work in search.ask()} == {0}


def test_a_step_that_cannot_be_kept_is_pruned_without_a_score():
    search = build(BeamSearchConfig(n=4, beam_width=4, num_iterations=3, agg_strategy="min"))
    grow(search, (0.5, 0.2, 0.3, 0.1))
    assert search.hints.needs() == {(0, 0): True}
    search.tell(Scored((0, 0), 1.0))  # min along the path: 0.5, which no sibling can beat
    assert search.hints.needs() == {(0, child): False for child in (1, 2, 3)}
    fates = [search.tree[0, child].fate for child in range(4)]
    assert fates == [Fate.EXPANDED, *[Fate.PRUNED] * 3]
    assert [work.node for work in search.ask()] == [(0, 0, child) for child in range(4)]
    search.tell(Scored((0, 1), 0.9))
    assert search.tree[0, 1].score is None, "late: it had been pruned"


def test_siblings_that_tie_at_their_parents_minimum_rank_by_their_own_score():
    search = build(BeamSearchConfig(n=4, beam_width=4, num_iterations=3, agg_strategy="min"))
    grow(search, (0.5, 0.2, 0.3, 0.1))
    for child, score in enumerate((0.7, 0.9, 0.6, 0.8)):
        search.tell(Scored((0, child), score))
        assert all(search.hints.needs().values()), (
            "any of the others may still have the better score"
        )
    assert [search.tree.path_score((0, child), "min") for child in range(4)] == [0.5] * 4
    assert {work.node[:2] for work in search.ask()} == {(0, 1)}


def test_no_active_beam_is_scored_once_enough_chains_have_ended():
    search = build(BeamSearchConfig(n=2, beam_width=1, num_iterations=3))
    grow(search, thoughts={(0,): END})
    search.tell(Scored((0,), 0.5))
    assert all(search.hints.needs().values()), "one completion is missing: the other beam goes on"
    search.tell(Scored((1,), 0.5))
    asked = grow(search, thoughts={(1, 0): END})
    assert asked == [(1, 0), (1, 1), (1, 0)], "the score of the second completion alone"
    assert search.hints.expandable() == set()
    search.tell(Scored((1, 0), 0.5))
    assert search.done
    assert search.tree[1, 1].fate is Fate.PRUNED


class LooksAtAll(Pruner):
    """Compares every candidate with the cutoff after every step and score."""

    def __init__(self, search):
        self.search = search

    def may_prune(self, candidate):
        return candidate.active

    def advance(self, candidate):
        rank = cutoff(self.search, candidate.pool)
        for each in list(candidate.pool.candidates):
            waits = each.awaited and each.active
            if waits and rank is not None and best_rank(each) > rank:
                self.search.withdraw(each)


@settings(max_examples=amount(37, 150), deadline=None)
@given(beam_configs, worlds, worlds)
def test_what_is_outranked_is_pruned_as_soon_as_if_every_candidate_were_looked_at(
    config, world, shuffle
):
    runs = []
    for pruner in (EarlyPruner, LooksAtAll):
        search = build(config)
        search.pruner = pruner(search)
        asked = drive(search, world, random.Random(shuffle))
        runs.append((asked, [(node.path, node.fate, node.score) for node in search.tree]))
    assert runs[0] == runs[1]
