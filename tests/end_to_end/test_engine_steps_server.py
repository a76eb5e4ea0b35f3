"""What the engines of a real server did, as the runs on it record it."""

import pytest
from tests.end_to_end.commands import carry_out, events

from tts.datasets.load import load_problems
from tts.lab.bench.single_run import prepare
from tts.lab.observer import Observer
from tts.runs.config import RunConfig
from tts.runs.engine_steps import read_step_log

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def runs(served, tmp_path_factory):
    """Two runs on one server, one after the other."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(served.home))
        problems = load_problems("demo", limit=2)
        plan = prepare(
            RunConfig(deployment_source="demo", dataset="demo", limit=2, parameters={"n": 4}),
            Observer(),
            problems=problems,
        )
        for name in ("first", "second"):
            carry_out(plan, folder / name)
    return folder / "first", folder / "second"


def steps(run, engine):
    session, *found = read_step_log(run, engine)
    assert not session.sampled
    return found


@pytest.mark.slow
def test_a_runs_steps_have_done_the_work_of_its_requests(runs):
    for run in runs:
        log = events(run)
        scored = [e for e in log if e["event"] == "scored" and not e["cached"]]
        cancelled = any(event["event"] == "cancelled" for event in log)
        verifier = steps(run, "verifier")
        assert sum(step.generated_tokens for step in verifier) >= len(scored)
        if not cancelled:
            assert sum(step.generated_tokens for step in verifier) == len(scored)
            tokens = sum(event["prompt_tokens"] for event in scored)
            assert sum(step.context_tokens for step in verifier) == tokens
        generator = steps(run, "generator")
        tokens = sum(event.get("tokens", 0) for event in log)
        assert sum(step.generated_tokens for step in generator) >= tokens
        assert max(step.blocks_used for step in generator) > 0
        assert all(step.blocks_used <= step.blocks for step in generator)
        assert generator[-1].active == 0, "nothing is missing at its end"


def test_each_step_is_one_runs_and_within_its_time(runs):
    for engine in ("generator", "verifier"):
        numbers = [[step.iteration for step in steps(run, engine)] for run in runs]
        for each in numbers:
            assert each == list(range(each[0], each[0] + len(each)))
        assert numbers[0][-1] < numbers[1][0]
        for run in runs:
            times = [step.t for step in steps(run, engine)]
            assert times == sorted(times)
            assert 0 <= times[0] <= times[-1] <= events(run)[-1]["t"]
