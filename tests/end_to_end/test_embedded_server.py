"""Both kinds of server give the same trees, score by score, and go on with each other's runs."""

import pytest
from tests.amounts import amount
from tests.end_to_end.commands import events, summary, wait_for_events

pytestmark = pytest.mark.server


def scores(folder):
    return {
        (e["problem"], tuple(e["node"])): e["score"]
        for e in events(folder)
        if e["event"] == "scored"
    }


OPTIONS = ("demo", "--limit", amount(2, 8), "--n", 8, "--seed", 3)


def run(served, kind, folder, *more):
    served.done("bench", *OPTIONS, "--server", kind, *more, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def whole(served, tmp_path_factory):
    """A beam search on Triton."""
    return run(served, "triton", tmp_path_factory.mktemp("runs") / "triton")


def assert_same(one, other):
    assert summary(one)["tree_digest"] == summary(other)["tree_digest"]
    assert scores(one) == scores(other)


def test_the_trees_and_all_scores_are_those_of_triton(served, whole, tmp_path):
    assert_same(whole, run(served, "embedded", tmp_path / "embedded"))


@pytest.mark.slow  # the engines are asked alike by every strategy
@pytest.mark.parametrize("strategy", ["dvts", "majority-vote"])
def test_so_they_are_of_other_strategies(served, tmp_path, strategy):
    folders = [
        run(served, kind, tmp_path / kind, "--strategy", strategy)
        for kind in ("triton", "embedded")
    ]
    assert_same(*folders)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["triton", "embedded"])
def test_a_run_that_was_begun_on_one_is_finished_on_the_other(served, whole, tmp_path, first):
    folder = tmp_path / "run"
    options = ("--schedule", "lockstep", "--server", first, "--out", folder)
    process = served.start("bench", *OPTIONS, *options)
    wait_for_events(process, folder, "problem_solved", 2)
    process.kill()
    process.communicate()
    second = "embedded" if first == "triton" else "triton"
    served.done("bench", "--resume", folder, "--server", second)
    assert summary(folder)["tree_digest"] == summary(whole)["tree_digest"]
