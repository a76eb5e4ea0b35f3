"""The servers that a session is told to use: which answer, which must not, what they are called."""

import asyncio

import pytest

from tts.base.errors import BuildError, ConfigError, EndpointUnavailable, ServerError
from tts.build.spec import Deployment, bundled_deployments, load_deployment
from tts.fleet import connecting
from tts.fleet.connecting import most_rows, require_engines
from tts.fleet.engines import Engines
from tts.fleet.replicas import Replicas
from tts.prompting import Models
from tts.serving.repository.digest import deployment_digest
from tts.session import AsyncSession


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
        models = Models.load(tiny_deployment)
        async with Replicas(lambda address: engines.connected(address)) as replicas:
            engines = Engines(models, (None, None), {}, replicas)
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
