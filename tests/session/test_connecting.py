"""Servers that a session finds, starts, or is told to use."""

import asyncio
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
from tests.session.remote_servers import remote

from tts.base.errors import BuildError, ConfigError, EndpointUnavailable, ServerError
from tts.build.spec import Deployment, bundled_deployments, load_deployment
from tts.fleet import connecting
from tts.fleet.connecting import most_rows, require_engines
from tts.fleet.engines import Engines
from tts.fleet.remotes import Remotes
from tts.fleet.replicas import Replicas
from tts.gateway import named_servers
from tts.gateway.named_servers import NamedServers, follow
from tts.prompting import Models
from tts.serving.repository.digest import deployment_digest
from tts.serving.server import supervise
from tts.serving.server.lookup import find_server
from tts.serving.server.started import services_of
from tts.session import AsyncSession, Session


@pytest.fixture
def served(monkeypatch):
    """By address, the digest of what answers there."""
    digests = {}

    monkeypatch.setattr(connecting.probe, "served_digest", digests.get)
    monkeypatch.setattr(connecting.probe, "probe", lambda address: None)
    return digests


def opened(deployment, addresses, say=print):
    """The circuits of the servers that a session uses, by address."""

    async def go():
        async with Replicas(lambda address: None) as replicas:
            engines = Engines(Models.load(deployment), (None, None), {}, replicas)
            await engines.use_several(addresses, {}, say)
            now = asyncio.get_running_loop().time()
            return {each.name: each.circuit.state(now) for each in replicas.pairs}

    return asyncio.run(go())


def test_those_that_do_not_answer_are_named_and_used_later(tiny_deployment, served):
    served["one:1"] = deployment_digest(tiny_deployment)
    said = []
    states = opened(tiny_deployment, ["one:1", "two:2"], said.append)
    assert states == {"one:1": "closed", "two:2": "open"}
    assert said == ["Using one:1", "two:2 does not answer; it is used as soon as it does"]


@pytest.mark.parametrize(
    ("urls", "addresses", "expected"),
    [
        (["gen"], ["one:1", "two:2", "three:3"], ["one:1", "two:2", "three:3"]),
        (["gen", "gen2"], ["one:1"], ["one:1", "http://gen2"]),
        (["gen", "gen2", "gen3"], ["one:1", "two:2"], ["one:1", "two:2", "http://gen3"]),
        (["gen", "gen2"], ["one:1", "two:2", "a:3", "b:4"], ["one:1", "two:2", "a:3", "b:4"]),
    ],
)
def test_servers_keep_their_names_and_groups_beside_engines_elsewhere(
    tiny_deployment, served, servers, monkeypatch, urls, addresses, expected
):
    monkeypatch.setattr(named_servers, "LOOK_S", 0.001)
    urls = tuple(f"http://{url}" for url in urls)
    for url in urls:
        servers.serve(url)
    deployment = remote(tiny_deployment, generator=urls, verifier=())
    served |= dict.fromkeys(addresses, deployment_digest(deployment))
    models = Models.load(deployment)

    async def go():
        async with Replicas(lambda address: None) as replicas:
            engines = Engines(models, (None, None), Remotes(models, {"generator"}), replicas)
            await engines.use_several(addresses, {each: f"g {each}" for each in addresses}, print)
            following = asyncio.ensure_future(
                follow(NamedServers(addresses, None, print), replicas, print)
            )
            await asyncio.sleep(0.1)  # a gateway lets none of them go
            following.cancel()
            return {pair.name: (pair.connection.address, pair.group) for pair in replicas.pairs}

    pairs = asyncio.run(go())
    assert list(pairs) == expected
    assert all(group == f"g {address}" for address, group in pairs.values())
    assert {name: pairs[name][0] for name in addresses} == {name: name for name in addresses}


def fails(address):
    raise ServerError(f"Model generator at {address} fails")


@pytest.mark.parametrize(
    ("digest", "probing", "named"),
    [
        (None, None, "No server answers at one:1, two:2"),
        ("another", None, "one:1 does not serve deployment tiny"),
        ("its own", fails, "No server answers at one:1, two:2"),  # as one that does not answer
    ],
)
def test_without_any_that_serves_it_the_session_does_not_open(
    tiny_deployment, served, monkeypatch, digest, probing, named
):
    if digest:
        served["one:1"] = deployment_digest(tiny_deployment) if probing else digest
    if probing:
        monkeypatch.setattr(connecting.probe, "probe", probing)
    with pytest.raises(ServerError, match=named):
        opened(tiny_deployment, ["one:1", "two:2"])


def test_one_more_server_is_used_only_if_it_answers(tiny_deployment, served):
    served["one:1"] = deployment_digest(tiny_deployment)

    async def go():
        async def connect(address):
            pair = engines.at(address, len(replicas))
            await pair.probe()
            return pair

        async with Replicas(connect) as replicas:
            engines = Engines(Models.load(tiny_deployment), (None, None), {}, replicas)
            await replicas.add("one:1")
            with pytest.raises(EndpointUnavailable, match="No server answers at two:2"):
                await replicas.add("two:2")
            return [pair.name for pair in replicas.pairs]

    assert asyncio.run(go()) == ["one:1"]


@pytest.mark.parametrize("endpoints", ["host:1", ["host"], ["host:port"], [1], ["unix:"]])
def test_what_is_no_address_is_refused(tiny_deployment, endpoints):
    with pytest.raises(ConfigError, match=r"endpoints is .* it must be a list of HOST:PORT"):
        AsyncSession(tiny_deployment, endpoints=endpoints)


def test_where_a_deployment_is_served_is_no_part_of_what_is_served(tiny_deployment):
    listed = Deployment.model_validate(
        {**tiny_deployment.model_dump(), "endpoints": ["one:1", "unix:/run/grpc:1"]}
    )
    assert listed.endpoints == ("one:1", "unix:/run/grpc:1")
    assert deployment_digest(listed) == deployment_digest(tiny_deployment)
    with pytest.raises(ValueError, match="'one' is not HOST:PORT"):
        Deployment.model_validate({**tiny_deployment.model_dump(), "endpoints": ["one"]})


@pytest.mark.parametrize("name", bundled_deployments())
def test_only_an_engine_host_of_ours_is_sent_several_rows_at_a_time(name):
    deployment = load_deployment(name)
    sizes = [engine.max_batch_size for engine in deployment.engines().values()]
    assert most_rows(deployment) == (min(sizes) if deployment.target == "openvino" else 1)
    assert most_rows(load_deployment("demo")) == 64


def test_a_gpu_is_needed_here_unless_the_servers_are_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    deployment = load_deployment("demo-gpu")
    with pytest.raises(ServerError, match="runs on an NVIDIA GPU"):
        require_engines(deployment, ())
    with pytest.raises(BuildError, match="is not ready"):
        require_engines(deployment, ("one:1",))


QUESTIONS = [f"Compute {number} + 1." for number in range(6)]
SEARCH = {"strategy": "beam-search", "n": 4, "num_iterations": 3}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def digests(results):
    return sorted((result.problem.id, result.tree_digest) for result in results)


def solved(deployment, folder=None, **own):
    with Session.open(deployment, **own) as session:
        return digests(session.solve_many(QUESTIONS, out=folder, **SEARCH))


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


async def test_a_pair_that_runs_is_used_by_several_and_ends_with_the_last(stage: Stage):
    deployment = started_deployment()
    async with AsyncSession(deployment) as first:
        assert await first.reset_prefix_caches(), "runs on it can begin with cold prefixes"
        with Session.open(deployment) as second:
            assert len(stage.calls) == 2
            second.solve(QUESTIONS[0], **SEARCH)
        await first.solve(QUESTIONS[0], **SEARCH)
    assert all(find_server(service) is None for service in services_of(deployment))


def test_engines_that_are_killed_in_a_run_are_back_and_trees_are_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervise, "FIRST_WAIT_S", 0.1)
    deployment = started_deployment()
    services = services_of(deployment)
    with Session.open(deployment) as session:
        undisturbed = digests(session.solve_many(QUESTIONS, **SEARCH))
        for killed in (services[:1], services[1:], services):
            results = session.solve_many(QUESTIONS, **SEARCH)
            first = next(results)
            for service in killed:
                os.kill(find_server(service).server.pid, signal.SIGKILL)
            assert digests([first, *results]) == undisturbed
    assert len(stage.calls) == 2 + 1 + 1 + 2


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
