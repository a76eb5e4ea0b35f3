"""Diverse verifier tree search: independent subtrees."""

from tests.search.driving import STEP, build, grow

from tts.search import DvtsConfig, Generated


def test_subtrees_of_dvts_do_not_wait_for_one_another():
    search = build(DvtsConfig(n=8, beam_width=2, num_iterations=3))
    assert [work.node for work in search.ask()] == [(child,) for child in range(8)]
    for child in (4, 5):
        search.tell(Generated((child,), STEP))
    assert grow(search, {(5,): 0.75, (4,): 0.25})[:4] == [(4,), (5,), (5, 0), (5, 1)]
