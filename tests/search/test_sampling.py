"""Whole chains: one node per step."""

from tests.search.driving import build

from tts.search import Generated, SampleSearchConfig, Scored, Stop, Thought


def test_whole_chains_become_one_node_per_step():
    search = build(SampleSearchConfig(n=1, agg_strategy="min"))
    search.ask()
    steps = (
        Thought((1,), "a\n\n", Stop.STEP),
        Thought((2,), "b\n\n", Stop.STEP),
        Thought((3,), "c", Stop.END),
    )
    search.tell(Generated((0,), steps))
    assert [work.node for work in search.ask()] == [(0,), (0, 0), (0, 0, 0)]
    for node, score in (((0,), 0.9), ((0, 0), 0.2), ((0, 0, 0), 0.8)):
        search.tell(Scored(node, score))
    (done,) = search.result().completions
    assert (done.text, done.score) == ("a\n\nb\n\nc", 0.2)


def test_a_score_that_nobody_asked_for_changes_nothing():
    search = build(SampleSearchConfig(n=1))
    search.ask()
    steps = (Thought((1,), "a\n\n", Stop.STEP), Thought((2,), "b", Stop.END))
    search.tell(Generated((0,), steps))
    search.tell(Scored((0,), 0.9))
    assert not search.done, "the last step alone is scored"
    search.tell(Scored((0, 0), 0.25))
    assert search.result().completions[0].score == 0.25
    assert search.tree[0,].score is None
