"""What a search guesses is what it asks for later."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import (
    END,
    STEP,
    answer,
    build,
    candidates_per_depth,
    drive,
    grow,
    tree_configs,
    worlds,
)

from tts.search import BeamSearchConfig, Expand, Fate, Scored, Stop, Thought, Work


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
