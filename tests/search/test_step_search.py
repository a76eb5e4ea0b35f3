"""Candidates: how they grow and are scored."""

from tests.search.driving import STEP, build

from tts.search import BeamSearchConfig, Generated, Score, Scored, Stop, Thought
from tts.search.step_hints import best_rank, expected_score
from tts.search.step_search import Candidate, Pool
from tts.search.tree import Node


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
