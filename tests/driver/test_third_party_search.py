"""A strategy of another package, with ask, tell and result alone, in the driver."""

import pytest
from tests.driver.scripted_run import PROBLEMS, Run
from tests.strategies.installed import install_the_example

from tts.strategies.catalog import find_strategy

SCHEDULES = ("lockstep", "batched", "alternating", "decoupled")


@pytest.fixture
def shortest(monkeypatch, tmp_path):
    """The example of docs/reference/strategies.md, installed."""
    install_the_example(monkeypatch, tmp_path)
    return find_strategy("shortest")


def test_it_is_solved_under_every_schedule_with_the_same_trees(tiny_deployment, words, shortest):
    context = tiny_deployment.generator.max_seq_len
    config = shortest.configure({"n": 4, "max_tokens": 40}, context=context)
    runs = [Run(tiny_deployment, words, config, schedule, jitter=1).go() for schedule in SCHEDULES]
    plain = runs[0]
    assert set(plain.completions) == {problem.id for problem in PROBLEMS}
    for run in runs[1:]:
        assert (run.digests, run.completions) == (plain.digests, plain.completions)
    for completions in plain.completions.values():
        scores = [done.score for done in completions]
        assert len(completions) == 4
        assert scores == sorted(scores, reverse=True)
