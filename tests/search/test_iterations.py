"""Strategies over steps: their rules, pruning before scores, hints."""

import random
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import (
    END,
    STEP,
    answer,
    beam_configs,
    build,
    candidates_per_depth,
    drive,
    grow,
    tree_configs,
    worlds,
)

from tts.search import (
    BeamSearchConfig,
    Calibration,
    DvtsConfig,
    Expand,
    Fate,
    Generated,
    Score,
    Scored,
    Stop,
    Thought,
    Work,
)
from tts.search.particle_filtering import effective_sample_size, systematic
from tts.search.rebase import share_out
from tts.search.step_hints import EarlyPruner, best_rank, cutoff, expected_score
from tts.search.step_search import Candidate, Pool, Pruner
from tts.search.tree import Node


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


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20),
    st.integers(0, 64),
    st.floats(1e-3, 1e3),
)
def test_shares_add_up_to_the_budget_and_follow_the_rank(scores, budget, temperature):
    scores.sort(reverse=True)
    shares = share_out(scores, budget, temperature)
    assert sum(shares) == budget
    assert min(shares) >= 0
    assert max(shares) == shares[0]


def test_shares_worked_by_hand():
    # e^0 : e^-1 : e^-2 = 1 : 0.368 : 0.135; 8 * 0.665 -> 6, then 2 * 0.731 -> 2, then none
    assert share_out([0.6, 0.4, 0.2], 8, 0.2) == [6, 2, 0]
    assert share_out([0.5] * 4, 8, 0.2) == [2, 2, 2, 2], "float noise must not give one a third"


@given(st.lists(st.floats(1e-4, 1), min_size=1, max_size=30), st.floats(0, 1, exclude_max=True))
def test_systematic_draws_differ_from_their_expectation_by_less_than_one(weights, point):
    weights = [weight / sum(weights) for weight in weights]
    drawn = systematic(weights, point)
    n = len(weights)
    assert sum(drawn) == n
    assert all(abs(k - n * w) < 1 + 1e-6 for k, w in zip(drawn, weights, strict=True))
    assert 1 <= effective_sample_size(weights) <= n + 1e-6


def test_equal_particles_are_all_kept():
    assert effective_sample_size([1 / 7] * 7) == 7
    assert systematic([1 / 7] * 7, 0.5) == [1] * 7


def test_finishing_to_the_end_of_the_sequence():
    search = build(BeamSearchConfig(n=1, beam_width=1, finish="eos", num_iterations=2))
    (first,) = search.ask()
    assert not first.whole
    search.tell(Generated((0,), STEP))
    search.ask()
    search.tell(Scored((0,), 0.5))
    (last,) = search.ask()
    assert last.whole
    tail = (Thought((2,), "b\n\n", Stop.STEP), Thought((3,), "c", Stop.END))
    search.tell(Generated(last.node, tail))
    assert [(type(work), work.node) for work in search.ask()] == [(Score, (0, 0, 0))]
    search.tell(Scored((0, 0, 0), 0.9))
    (done,) = search.result().completions
    assert (done.node, done.text, done.score) == ((0, 0, 0), "a\n\nb\n\nc", 0.9)


def test_a_candidate_is_expected_to_score_what_its_path_does():
    """Not what its last step does, and before it is ready what the path above it does."""
    pool = Pool(key=0, iteration=1, whole=False)
    candidate = Candidate(pool, 1, Node((0,)), upper_bound=0.8, prior=0.6)
    assert (expected_score(candidate), best_rank(candidate)) == (0.6, (-0.8, -1.0, (0,)))
    candidate.rank = (-0.5, -0.9, (0,))
    assert (expected_score(candidate), best_rank(candidate)) == (0.5, candidate.rank)


@settings(max_examples=amount(125, 500), deadline=None)
@given(tree_configs, worlds, st.integers(0, 10**6))
def test_what_is_guessed_is_what_will_be_asked(config, world, shuffle):
    """Guesses are exact, no more than could be asked for, and ruled out for good or not at all."""
    order = random.Random(shuffle)
    search = build(config)
    asked_for = {w.node: w for w in drive(build(config), world) if isinstance(w, Expand)}
    answered: dict[tuple[int, ...], tuple[Thought, ...]] = {}
    ruled_out: set[tuple[int, ...]] = set()
    guesses: dict[tuple[int, ...], Expand] = {}
    pending: list[Work] = []
    while not search.done:
        pending += search.ask()
        levels = Counter()
        last = (0, 0.0)
        for guess in search.hints.guess(answered):
            node = guess.work.node
            assert node not in search.tree
            assert node not in answered
            assert 0.0 <= guess.chance <= 1.0
            assert last <= (guess.level, -guess.chance), "shallow first, then by chance"
            last = (guess.level, -guess.chance)
            levels[guess.level] += 1
            guesses[node] = guess.work
            assert not any(node[:depth] in ruled_out for depth in range(1, len(node)))
            if order.random() < 0.3:  # an engine has answered it before it was asked for
                answered[node] = answer(guess.work, world).thoughts
            if guess.level > 3:
                break
        assert all(count <= candidates_per_depth(config) for count in levels.values())
        expandable = search.hints.expandable()
        work = pending.pop(order.randrange(len(pending)))
        search.tell(answer(work, world))
        gone = {path for path in expandable if path not in search.hints.expandable()}
        left = (search.tree.get(path) for path in gone)  # subtrees may be dropped
        ruled_out |= {node.path for node in left if node and node.fate is not Fate.EXPANDED}
    asked = {node.path for node in search.tree}
    for node, guess in guesses.items():
        if node in asked:
            assert guess == asked_for.get(node, guess)
    assert not any(search.tree[path].fate is Fate.EXPANDED for path in ruled_out & asked)


def test_guesses_cover_the_next_expansions_of_a_decided_search():
    """All scored but one: the three best of four are guessed, and then asked as guessed."""
    search = build(BeamSearchConfig(n=4, beam_width=2, num_iterations=3))
    grow(search, (0.9, 0.2, 0.8))
    assert search.hints.expandable() == {(0,), (2,), (3,)}, (
        "1 is outranked by two, 3 has no score yet"
    )
    guesses = list(search.hints.guess({}))
    assert [g.work.node for g in guesses] == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert {g.level for g in guesses} == {1}
    # of 4 that compete 2 will be kept; the r-th of the 3 scored is expected to end as 5 / 4 * r-th
    assert [guess.chance for guess in guesses] == pytest.approx([1.0, 1.0, 0.8, 0.8])
    deeper = [g for g in search.hints.guess({(0, 0): STEP}) if g.level == 2]
    assert [g.work.node for g in deeper] == [(0, 0, 0), (0, 0, 1)]
    assert [g.chance for g in deeper] == [0.5, 0.5], "two of its four rivals would be kept"
    search.tell(Scored((3,), 0.1))
    assert search.ask() == [g.work for g in guesses]


@pytest.mark.parametrize(
    ("said", "iterations", "expected"),
    [
        (STEP, 4, {(0, 0, child) for child in range(4)}),
        (END, 4, set()),
        ((Thought((1,), "a", Stop.LENGTH),), 4, set()),
        ((Thought((1,), " \n\n", Stop.STEP),), 4, set()),
        (STEP, 2, set()),
    ],
)
def test_nothing_is_guessed_below_a_chain_that_has_ended_or_beyond_the_last_iteration(
    said, iterations, expected
):
    search = build(BeamSearchConfig(n=4, beam_width=4, num_iterations=iterations))
    grow(search)
    nodes = {guess.work.node for guess in search.hints.guess({(0, 0): said})}
    assert nodes == {(0, 1), (0, 2), (0, 3)} | expected
