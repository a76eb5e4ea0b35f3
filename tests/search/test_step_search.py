"""Candidates: how they grow, look ahead and are scored."""

from tests.search.driving import build

from tts.search import BeamSearchConfig, Expand, Fate, Generated, Score, Scored, Stop, Thought


def test_a_candidate_of_two_steps_is_scored_once():
    search = build(BeamSearchConfig(n=1, beam_width=1, granularity=2, num_iterations=2))
    (first,) = search.ask()
    search.tell(Generated(first.node, (Thought((1,), "a\n\n", Stop.STEP),)))
    (second,) = search.ask()
    assert (type(second), second.node) == (Expand, (0, 0))
    search.tell(Generated(second.node, (Thought((2,), "b\n\n", Stop.STEP),)))
    assert [(type(w), w.node) for w in search.ask()] == [(Score, (0, 0))]
    search.tell(Scored((0, 0), 0.5))
    assert [work.node for work in search.ask()] == [(0, 0, 0)]


def test_a_look_ahead_is_greedy_and_its_score_counts_for_the_step():
    search = build(BeamSearchConfig(n=2, beam_width=2, lookahead=2, num_iterations=2))
    for work in search.ask():
        search.tell(Generated(work.node, (Thought((1,), "a\n\n", Stop.STEP),)))
    ahead = search.ask()
    assert [(work.node, work.sampling.temperature) for work in ahead] == [
        ((0, -1), 0),
        ((1, -1), 0),
    ]
    search.tell(Generated((0, -1), (Thought((2,), "b", Stop.END),)))
    search.tell(Generated((1, -1), (Thought((2,), "b\n\n", Stop.STEP),)))
    assert [work.node for work in search.ask()] == [(0, -1), (1, -1, -1)]
    search.tell(Generated((1, -1, -1), (Thought((2,), "c\n\n", Stop.STEP),)))
    assert [(type(w), w.node) for w in search.ask()] == [(Score, (1, -1, -1))]
    search.tell(Scored((0, -1), 0.25))
    search.tell(Scored((1, -1, -1), 0.75))
    assert search.tree[1,].score == 0.75
    assert search.tree[1,].fate is Fate.EXPANDED
    assert search.tree[0,].fate is Fate.PRUNED
    last = search.ask()
    assert [work.node for work in last] == [(1, 0), (1, 1)]
    for work in last:
        search.tell(Generated(work.node, (Thought((1,), "d\n\n", Stop.STEP),)))
    asked = [(type(work), work.node) for work in search.ask()]
    assert asked == [(Score, (1, 0)), (Score, (1, 1))], "no look-ahead in the last iteration"


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
