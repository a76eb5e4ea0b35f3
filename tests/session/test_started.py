"""Sessions that find or start engines that are servers of their own, with stand-ins."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.serving.conftest import wait_until
from tests.serving.started import Stage, started_deployment

from tts.base.errors import ServerError
from tts.serving.server.lookup import find_server
from tts.serving.server.started import services_of
from tts.session import AsyncSession, Session

QUESTIONS = [f"Compute {number} + 1." for number in range(6)]
SEARCH = {"strategy": "beam-search", "n": 4, "num_iterations": 3}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def solved(deployment, folder=None, *, resume=False, **own):
    with Session.open(deployment, **own) as session:
        results = session.solve_many(QUESTIONS, out=folder, resume=resume, **SEARCH)
        return sorted((result.problem.id, result.tree_digest) for result in results)


def test_a_session_starts_a_pair_and_leaves_nothing(stage: Stage, tmp_path: Path):
    deployment, said, loading = started_deployment(), [], []
    solved(deployment, tmp_path / "run", say=said.append, on_loading=loading.append)
    starting = [line for line in said if line.startswith(("Starting", "Ready", "Using"))]
    assert [line.split(":")[0].partition(" at ")[0] for line in starting] == [
        "Starting the vllm server of the generator",
        "Ready",
        "Starting the vllm server of the verifier",
        "Ready",
        "Using the generator",
        "Using the verifier",
    ]
    assert all({*each.engines} == {"generator", "verifier"} for each in loading)
    assert all(find_server(service) is None for service in services_of(deployment))
    written = json.loads((tmp_path / "run" / "run.json").read_text())["remotes"]
    assert written["generator"]["started"].startswith("vllm serve ")
    assert "vLLM 0.32.0" in written["generator"]["servers"][0]
    assert written["generator"]["deterministic"] is False
    assert "API_KEY" not in str(written)


def test_one_model_in_both_roles_is_one_server(stage: Stage):
    deployment = started_deployment()
    verifier = {"same_as": "generator", "in_flight_tokens": 512}
    shared = type(deployment).model_validate(
        {
            "name": "both",
            "target": "vllm",
            "generator": deployment.generator.model_dump(exclude_defaults=True),
            "verifier": verifier,
        }
    )
    assert solved(shared) == solved(deployment)
    assert len(stage.calls) == 1 + 2


def test_a_pair_that_runs_is_used_by_several_and_ends_with_the_last(stage: Stage):
    deployment = started_deployment()
    with Session.open(deployment) as first:
        with Session.open(deployment) as second:
            assert len(stage.calls) == 2
            second.solve(QUESTIONS[0], **SEARCH)
        first.solve(QUESTIONS[0], **SEARCH)
    assert all(find_server(service) is None for service in services_of(deployment))


async def test_a_run_on_a_pair_that_runs_can_begin_with_cold_prefixes(stage: Stage):
    async with AsyncSession(started_deployment()) as session:
        assert await session.reset_prefix_caches()


@pytest.mark.parametrize("roles", [("generator",), ("verifier",), ("generator", "verifier")])
def test_engines_that_are_killed_in_a_run_are_back_and_trees_are_the_same(
    stage: Stage, roles: tuple[str, ...]
):
    deployment = started_deployment()
    undisturbed, services = solved(deployment), services_of(deployment)
    with Session.open(deployment) as session:
        results = session.solve_many(QUESTIONS, **SEARCH)
        first = next(results)
        for service in services:
            if service.roles[0] in roles:
                os.kill(find_server(service).server.pid, signal.SIGKILL)
        found = [first, *results]
    assert sorted((each.problem.id, each.tree_digest) for each in found) == undisturbed
    assert len(stage.calls) == 2 + 2 + len(roles)


def test_a_pair_that_does_not_start_says_why_and_leaves_nothing(stage: Stage):
    stage.starts("", "no room")
    deployment = started_deployment()
    with pytest.raises(ServerError, match=r"server of the verifier stopped\. The KV cache"):
        Session.open(deployment)
    assert all(find_server(service) is None for service in services_of(deployment))


def test_engines_without_their_supervisor_are_used_until_they_die(stage: Stage):
    """Who started them is gone; they are shared, so they live as long as they are used."""
    deployment = started_deployment()
    program = (
        "import os, time\n"
        "from tests.serving.started import started_deployment\n"
        "from tts.session import Session\n"
        "with Session.open(started_deployment()): print('open', flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        with Session.open(deployment) as session:
            other.kill()
            session.solve(QUESTIONS[0], **SEARCH)
            assert len(stage.calls) == 2
            pids = [find_server(service).server.pid for service in services_of(deployment)]
        wait_until(lambda: not any(map(psutil.pid_exists, pids)))
