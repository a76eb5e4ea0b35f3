"""Diverse verifier tree search: independent subtrees."""

from tests.search.driving import build

from tts.search import DvtsConfig, Generated, Scored, Stop, Thought


def test_subtrees_of_dvts_do_not_wait_for_one_another():
    config = DvtsConfig(n=8, beam_width=2, num_iterations=3)
    search = build(config)
    asks = search.ask()
    assert [work.node for work in asks] == [(child,) for child in range(8)]
    for child in (4, 5):
        search.tell(Generated((child,), (Thought((1,), "x\n\n", Stop.STEP),)))
    assert [work.node for work in search.ask()] == [(4,), (5,)]
    search.tell(Scored((5,), 0.75))
    search.tell(Scored((4,), 0.25))
    assert [work.node for work in search.ask()] == [(5, 0), (5, 1)]
