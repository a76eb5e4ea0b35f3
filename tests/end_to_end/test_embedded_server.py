"""Both kinds of server give the same trees, score by score, and go on with each other's runs."""

import pytest
from tests.end_to_end.commands import events, summary, wait_for_events

from tts.build import paths

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not (paths.deployments_dir().parent / "checkpoints" / "demo-verifier").is_dir(),
        reason="the demo checkpoints are not here",
    ),
]


def scores(folder):
    return {
        (e["problem"], tuple(e["node"])): e["score"]
        for e in events(folder)
        if e["event"] == "scored"
    }


@pytest.mark.parametrize("strategy", ["beam-search", "dvts", "self-consistency"])
def test_the_trees_and_all_scores_are_those_of_triton(served, tmp_path, strategy):
    options = "demo", "--limit", 8, "--n", 8, "--seed", 3, "--strategy", strategy
    for kind in ("triton", "embedded"):
        code, _, err = served.run("bench", *options, "--server", kind, "--out", tmp_path / kind)
        assert code == 0, err
    one, other = (summary(tmp_path / kind) for kind in ("triton", "embedded"))
    assert one["tree_digest"] == other["tree_digest"]
    assert scores(tmp_path / "triton") == scores(tmp_path / "embedded")


@pytest.mark.parametrize("first", ["triton", "embedded"])
def test_a_run_that_was_begun_on_one_is_finished_on_the_other(served, tmp_path, first):
    options = "demo", "--limit", 16, "--n", 8
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert served.run("bench", *options, "--out", whole)[0] == 0
    process = served.start("bench", *options, "--server", first, "--out", folder)
    wait_for_events(process, folder, "problem_solved", 2)
    process.kill()
    process.communicate()
    second = "embedded" if first == "triton" else "triton"
    code, _, err = served.run("bench", "--resume", folder, "--server", second)
    assert code == 0, err
    assert summary(folder)["tree_digest"] == summary(whole)["tree_digest"]
