"""Every strategy's tree under any order of events."""

import random
import subprocess
import sys
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import (
    answer,
    beam_configs,
    build,
    configs,
    drive,
    dvts_configs,
    may_stop_early,
    worlds,
)

from tts.search import (
    BeamSearchConfig,
    Calibration,
    DvtsConfig,
    Expand,
    Fate,
    Score,
    Search,
    Work,
)
from tts.strategies.catalog import STRATEGIES

INTERLEAVINGS = amount(140, 1500)
"""Random trees, each under a random order of events, in the first test below."""


def outcome(search: Search):
    """All but the scores of pruned nodes, which are missing where nothing hung on them."""
    nodes = {
        node.path: (node.thought, None if node.fate is Fate.PRUNED else node.score, node.fate)
        for node in search.tree
    }
    return nodes, search.result().completions


def scores(search: Search, other: Search):
    """The pairs of scores of the nodes that are scored in both."""
    return [
        (node.score, other.tree[node.path].score)
        for node in search.tree
        if node.score is not None and other.tree[node.path].score is not None
    ]


def needed(asked: list[Work], search: Search) -> set[tuple[type, tuple[int, ...]]]:
    """What was asked for, without the scores of pruned nodes."""
    return {
        (type(work), work.node)
        for work in asked
        if isinstance(work, Expand) or search.tree[work.node].fate is not Fate.PRUNED
    }


@settings(max_examples=INTERLEAVINGS, deadline=None)
@given(configs, worlds, st.integers(0, 10**6), st.sampled_from([1, 0.6]))
def test_the_tree_does_not_depend_on_the_order_of_events(config, world, shuffle, best):
    """With a calibration, too, whose best probability is less than 1."""
    plain, shuffled = build(config), build(config)
    plain.tree.calibration = shuffled.tree.calibration = Calibration.of([(0, 0), (1, best)])
    asked = drive(plain, world)
    asked_shuffled = drive(shuffled, world, random.Random(shuffle))
    assert plain.tree.digest() == shuffled.tree.digest()
    assert outcome(plain) == outcome(shuffled)
    assert all(one == other for one, other in scores(plain, shuffled))
    for works in (asked, asked_shuffled):
        assert max(Counter(w.node for w in works if isinstance(w, Expand)).values()) == 1
        assert max(Counter(type(w).__name__ + str(w.node) for w in works).values()) == 1
    if not may_stop_early(config):
        assert needed(asked, plain) == needed(asked_shuffled, shuffled)


@settings(max_examples=INTERLEAVINGS, deadline=None)
@given(configs, worlds, st.integers(0, 10**6))
def test_a_search_does_without_a_score_only_if_it_said_that_it_might(config, world, shuffle):
    search = build(config)
    scores = [w for w in drive(search, world, random.Random(shuffle)) if isinstance(w, Score)]
    if not isinstance(config, BeamSearchConfig | DvtsConfig):
        assert not any(work.may_be_pruned for work in scores)
        assert search.hints.needs() == {}
    else:
        certain = [search.tree[work.node] for work in scores if not work.may_be_pruned]
        assert all(node.score is not None for node in certain if node.fate is Fate.PRUNED)


def drive_in_a_crowd(search: Search, world: int, order: random.Random):
    """Run a search to its end on a verifier that scores what may not be needed only if idle.

    Returns what the search called needed, and what it withdrew.
    """
    pending: list[Work] = []
    held: dict[tuple[int, ...], Score] = {}
    needed: list[tuple[int, ...]] = []
    withdrawn: list[tuple[int, ...]] = []
    while not search.done:
        for work in search.ask():
            if isinstance(work, Score) and work.may_be_pruned:
                held[work.node] = work
            else:
                pending.append(work)
        for node, need in search.hints.needs().items():
            if need:
                needed.append(node)
                pending.append(held.pop(node))
            else:
                withdrawn.append(node)
                held.pop(node, None)
                pending = [w for w in pending if not (isinstance(w, Score) and w.node == node)]
        if not pending:
            pending.append(held.pop(min(held)))
        search.tell(answer(pending.pop(order.randrange(len(pending))), world))
    assert search.hints.needs() == {}
    return needed, withdrawn


@settings(max_examples=INTERLEAVINGS, deadline=None)
@given(st.one_of(beam_configs, dvts_configs), worlds, st.integers(0, 10**6))
def test_needs_names_only_what_waits_and_the_tree_is_the_same(config, world, shuffle):
    """Taking a node from `held` fails if it was not asked for, is answered or was withdrawn."""
    plain, crowded = build(config), build(config)
    drive(plain, world)
    needed, withdrawn = drive_in_a_crowd(crowded, world, random.Random(shuffle))
    assert plain.tree.digest() == crowded.tree.digest()
    assert outcome(plain) == outcome(crowded)
    assert max(Counter(needed).values(), default=1) == 1
    if isinstance(config, DvtsConfig) and config.agg_strategy == "last":
        assert not set(needed) & set(withdrawn), "nothing could spare them"


def test_trees_are_the_same_in_another_process():
    """Whatever PYTHONHASHSEED is: nothing in the core depends on Python's own hash."""
    code = (
        "from tests.search.driving import build, drive\n"
        "from tts.strategies.catalog import STRATEGIES\n"
        "for strategy in STRATEGIES.values():\n"
        "    search = build(strategy.configure({}, context=4096)); drive(search, 5)\n"
        "    print(strategy.name, search.tree.digest())\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) == len(STRATEGIES)
