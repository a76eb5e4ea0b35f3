"""The docker command that runs a server, against what deployment and facts require.

It is worked out here a second time: the two were written independently.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
    if deployment.target == "tensorrt":
        made = server_command(Docker(image(deployment)), deployment, _ADDRESSES)
        assert list(command_problems(deployment, made.words)) == []


def command_problems(deployment: Deployment, command: Sequence[str]) -> Iterator[str]:
    """The differences from what the deployment and the facts require, each with its word."""
    wanted_image = _image(deployment)
    if wanted_image not in command:
        yield f"does not run the image {wanted_image}"
        return
    at = command.index(wanted_image)
    options, served = command[:at], command[at + 1 :]
    wanted = Counter(_options(deployment))
    there = Counter(word for word in options if not word.startswith("--name="))
    for word in (wanted - there).elements():
        yield f"lacks {word}"
    for word in (there - wanted).elements():
        yield f"has {word}, which nobody asked for"
    yield from _served_problems(deployment, served)


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


def _served_problems(deployment: Deployment, served: Sequence[str]) -> Iterator[str]:
    """Mistakes in the command line inside the container, under mpirun if it has ranks."""
    wanted = [
        f"--model-repository={paths.repository_dir(deployment.name)}",
        *(f"--{name}-port={port}" for name, port in _ports().items()),
        *(f"--{name}-address=0.0.0.0" for name in _ports()),
        "--model-control-mode=none",
        *(f"{flag}={_CLOSED_APIS}:{_NO_HEADER}" for flag in CLOSED_BY),
        *(LAUNCH["orchestrator"]["arguments"] if _has_ranks(deployment) else ()),
    ]
    for word in wanted:
        if word not in served:
            yield f"lacks {word}"
    if _has_ranks(deployment) and "mpirun" not in served:
        yield "lacks mpirun, which spawns the ranks"
    binary = [at for at, word in enumerate(served) if word.endswith("/tritonserver")]
    if len(binary) != 1:
        yield "does not run tritonserver"
        return
    known = set(LAUNCH["tritonserver_flags"])
    for word in served[binary[0] + 1 :]:
        if word.partition("=")[0] not in known:
            yield f"has {word}, which tritonserver does not know"


def _ports() -> dict[str, int]:
    spec = _ADDRESSES
    return {"grpc": spec.grpc_port, "http": spec.http_port, "metrics": spec.metrics_port}


def _has_ranks(deployment: Deployment) -> bool:
    """Whether the server is not the only rank of each engine: all but engines on GPU 0 alone."""
    replicas = [gpus for e in deployment.engines().values() for gpus in e.placement.replicas]
    return {gpu for gpus in replicas for gpu in gpus} != {0}
