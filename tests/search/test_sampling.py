"""Whole chains: one node per step."""

import pytest
from tests.search.driving import END, STEP, build, grow

from tts.search import Generated, SampleSearchConfig, Scored


@pytest.mark.parametrize(
    ("how", "wanted", "score"),
    [("min", [(0,), (0, 0), (0, 0, 0)], 0.2), ("last", [(0, 0, 0)], 0.8)],
)
def test_whole_chains_become_one_node_per_step_scored_as_far_as_that_matters(how, wanted, score):
    search = build(SampleSearchConfig(n=1, agg_strategy=how))
    search.ask()
    search.tell(Generated((0,), STEP + STEP + END))
    assert [work.node for work in search.ask()] == wanted
    for node, each in (((0,), 0.9), ((0, 0), 0.2), ((0, 0, 0), 0.8)):
        assert not search.done
        search.tell(Scored(node, each))
        assert (search.tree[node].score is not None) == (node in wanted)
    (done,) = search.result().completions
    assert (done.text, done.score) == ("a\n\na\n\na", score)


def test_chains_without_scores_come_out_by_path():
    search = build(SampleSearchConfig(n=3, scored=False))
    grow(search, thoughts={(0,): STEP + END, (1,): END, (2,): STEP + END})
    assert [each.node for each in search.result().completions] == [(0, 0), (1,), (2, 0)]
