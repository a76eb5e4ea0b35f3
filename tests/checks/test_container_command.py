"""The docker command that runs a server, against what deployment and facts require.

It is worked out here a second time: the two were written independently.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.serving.facts import LAUNCH

from tts.build import paths
from tts.build.spec import Deployment, bundled_deployments, load_deployment
from tts.serving.command.container import Docker, image
from tts.serving.command.ports import Addresses
from tts.serving.command.server_command import server_command

_ADDRESSES = Addresses("127.0.0.1", 8001, 8000, 8002)
"""Any will do: how the command treats them is what is checked."""
CLOSED_BY = ("--grpc-restricted-protocol", "--http-restricted-api")
_CLOSED_APIS = "shared-memory,model-repository,trace,logging"
_NO_HEADER = "closed:to-all=nobody"
"""A header that a client would have to send to use these APIs, and cannot
(docs/explanation/security.md)."""


@pytest.mark.parametrize("name", bundled_deployments())
def test_the_command_of_every_ready_made_deployment_is_as_it_should_be(name: str):
    deployment = load_deployment(name)
    if deployment.target != "tensorrt":
        return
    words = server_command(Docker(image(deployment)), deployment, _ADDRESSES).words
    at = words.index(_image(deployment))
    options, served = words[:at], words[at + 1 :]
    assert sorted(word for word in options if not word.startswith("--name=")) == sorted(
        _options(deployment)
    )
    assert set(_arguments(deployment)) <= set(served)
    assert "mpirun" in served or not _has_ranks(deployment)
    (server,) = (at for at, word in enumerate(served) if word.endswith("/tritonserver"))
    flags = {word.partition("=")[0] for word in served[server + 1 :]}
    assert flags <= set(LAUNCH["tritonserver_flags"])


def _image(deployment: Deployment) -> str:
    assert deployment.tensorrt is not None
    image: str = LAUNCH["containers"]["image"]
    return image.replace("TAG", deployment.tensorrt.container)


def _options(deployment: Deployment) -> Iterator[str]:
    yield from ("docker", "run", "--rm", "--init", "--pull=never", "--gpus=all")
    settings = LAUNCH["containers"]["settings"]
    yield f"--shm-size={settings['--shm-size']}"
    for limit in settings["--ulimit"]:
        yield f"--ulimit={limit}"
    yield f"--user={os.getuid()}:{os.getgid()}"
    yield "--security-opt=no-new-privileges"
    for port in _ports().values():
        yield f"--publish={_ADDRESSES.host}:{port}:{port}"
    for path in (paths.repository_dir(deployment.name), *_loaded(deployment)):
        yield f"--mount=type=bind,src={path},dst={path},readonly"
    for key, value in _environment(deployment).items():
        yield f"--env={key}={value}"


def _loaded(deployment: Deployment) -> set[Path]:
    """The folders that models load."""
    return {paths.engine_dir(deployment.name, role) for role in deployment.engines()}


def _environment(deployment: Deployment) -> Mapping[str, str]:
    user = {"HOME": "/tmp", "USER": "tts"}
    always = LAUNCH.get("environment", {}).get("variables", {})
    ranks = LAUNCH["orchestrator"]["environment"] if _has_ranks(deployment) else {}
    return {**user, **always, **ranks}


def _arguments(deployment: Deployment) -> Iterator[str]:
    """What must be in the command line inside the container, under mpirun if it has ranks."""
    yield f"--model-repository={paths.repository_dir(deployment.name)}"
    for name, port in _ports().items():
        yield f"--{name}-port={port}"
        yield f"--{name}-address=0.0.0.0"
    yield "--model-control-mode=none"
    for flag in CLOSED_BY:
        yield f"{flag}={_CLOSED_APIS}:{_NO_HEADER}"
    if _has_ranks(deployment):
        yield from LAUNCH["orchestrator"]["arguments"]


def _ports() -> dict[str, int]:
    spec = _ADDRESSES
    return {"grpc": spec.grpc_port, "http": spec.http_port, "metrics": spec.metrics_port}


def _has_ranks(deployment: Deployment) -> bool:
    """Whether the server is not the only rank of each engine: all but engines on GPU 0 alone."""
    replicas = [gpus for e in deployment.engines().values() for gpus in e.placement.replicas]
    return {gpu for gpus in replicas for gpu in gpus} != {0}
