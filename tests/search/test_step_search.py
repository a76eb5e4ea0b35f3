"""Candidates: how they grow and are scored."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.search.driving import build, drive, tree_configs, worlds

from tts.search import (
    BeamSearch,
    BeamSearchConfig,
    DvtsSearch,
    Generated,
    ParticleSearch,
    RebaseSearch,
    Score,
    Scored,
    Stop,
    Thought,
)
from tts.search.candidates import Candidate, Pool
from tts.search.pruning import PruningSearch
from tts.search.tree import Node


def test_finishing_to_the_end_of_the_sequence():
    search = build(BeamSearchConfig(n=1, beam_width=1, finish="eos", num_iterations=2))
    (first,) = search.ask()
    assert not first.whole
    search.tell(Generated((0,), (Thought((1,), "a\n\n", Stop.STEP),)))
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


DRAWN = {
    ("_open", "GROWING"),
    ("GROWING", "SCORING"),
    ("SCORING", "READY"),
    ("SCORING", "_withdraw"),
    ("READY", "_decide"),
}
"""The arrows that are drawn at the top of step_search and of pruning."""


@pytest.fixture
def taken(monkeypatch):
    """The arrows that candidates have taken, as pairs of names."""
    seen = set()

    def set_attribute(candidate, name, value):
        if name == "state":
            before = getattr(candidate, "state", None)
            seen.add((before.name if before else "_open", value.name))
        object.__setattr__(candidate, name, value)

    def watched(decide):
        def watching(search, pool):
            seen.update((candidate.state.name, "_decide") for candidate in pool.candidates)
            decide(search, pool)

        return watching

    def withdraw(search, candidate, original=PruningSearch._withdraw):
        seen.add((candidate.state.name, "_withdraw"))
        original(search, candidate)

    monkeypatch.setattr(Candidate, "__setattr__", set_attribute)
    monkeypatch.setattr(PruningSearch, "_withdraw", withdraw)
    for strategy in (BeamSearch, DvtsSearch, RebaseSearch, ParticleSearch):
        monkeypatch.setattr(strategy, "_decide", watched(strategy._decide))
    return seen


def test_candidates_go_the_ways_that_are_drawn_and_no_other(taken):
    @settings(max_examples=300, deadline=None)
    @given(tree_configs, worlds, st.integers(0, 10**6))
    def go(config, world, shuffle):
        drive(build(config), world, random.Random(shuffle))

    go()
    assert taken == DRAWN


def test_a_candidate_is_expected_to_score_what_its_path_does():
    """Not what its last step does, and before it is ready what the path above it does."""
    pool = Pool(key=0, iteration=1, last=False, whole=False)
    candidate = Candidate(pool, 1, Node((0,)), upper_bound=0.8, prior=0.6)
    assert (candidate.expected_score, candidate.best_rank) == (0.6, (-0.8, -1.0, (0,)))
    candidate.rank = (-0.5, -0.9, (0,))
    assert (candidate.expected_score, candidate.best_rank) == (0.5, candidate.rank)
