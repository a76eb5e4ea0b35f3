"""Checks of how a server is started: where it would listen, and the docker command."""

from __future__ import annotations

import errno
import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tts.build import paths
from tts.build.spec import Deployment
from tts.serving.command.container import Docker, image
from tts.serving.command.ports import Addresses, is_loopback
from tts.serving.command.server_command import server_command
from tts.serving.contract.facts import launch_rules
from tts.serving.repository.check import Finding

_ADDRESSES = Addresses("127.0.0.1", 8001, 8000, 8002)
"""Any will do: how the command treats them is what is checked."""
_WHY = {
    "--shm-size": "tensors pass to Triton's Python models through shared memory, of which docker "
    "gives 64 MB by itself",
    "--ulimit": "pinned memory and the stacks of the ranks exceed docker's limits",
    "--gpus": "GPUs have their own numbers inside only if all are there",
    "--mount": "the server finds the repository and each engine or checkpoint at the path it has",
    "--publish": "clients connect to the port at which the server listens inside",
    "--env": "TensorRT-LLM reads its environment when the server starts",
    "--user": "the server must be able to read the engines and the repository",
    "--security-opt": "no process in the container may gain rights",
    "--pull": "14 GB are not downloaded unasked",
    "--rm": "a container that has ended is not kept",
    "--init": "without it nobody reaps the processes of the ranks",
    "--model-repository": "it is what the server serves",
    "--grpc-restricted-protocol": "any client could change the server, or read its memory",
    "--http-restricted-api": "any client could change the server, or read its memory",
}
CLOSED_BY = ("--grpc-restricted-protocol", "--http-restricted-api")
_CLOSED_APIS = "shared-memory,model-repository,trace,logging"
_NO_HEADER = "closed:to-all=nobody"
"""A header that a client would have to send to use these APIs, and cannot
(docs/explanation/security.md)."""
_OTHERWISE = "the server would run otherwise than the deployment says"
_WHERE = "server.host"
_LOOPBACK = "Use 127.0.0.1, which only this machine can reach."


def host(deployment: Deployment) -> Iterator[Finding]:
    """The server's host is an address of this machine, and open to others only knowingly."""
    spec = deployment.server
    if not deployment.engines():
        return  # nothing is started
    if problem := _unusable(spec.host):
        yield Finding(
            f"is {spec.host!r}, {problem}",
            _WHERE,
            "a server that is started here cannot listen there",
            _LOOPBACK,
            "warning",  # the server may be meant for another machine
        )
    elif not is_loopback(spec.host):
        yield Finding(
            f"is {spec.host!r}, which opens the server to every machine that reaches this one",
            _WHERE,
            "nobody is asked for a password: whoever connects can use the models and end the "
            "server (docs/explanation/security.md)",
            f"{_LOOPBACK} Others reach it through a tunnel (ssh -L), or in a network that you "
            "trust.",
            "warning",
        )


def _unusable(name: str) -> str | None:
    """Why no server on this machine can listen at a host; None if one can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:  # as Triton, IPv4 only
        try:
            bound.bind((name, 0))
        except socket.gaierror:
            return "a name that has no IPv4 address here"
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return "which is not an address of this machine"
            return f"at which nothing can listen: {error.strerror}"
    return None


def container_command(deployment: Deployment) -> Iterator[Finding]:
    """What runs a server in NVIDIA's container: its memory, GPUs, mounts, ports, environment."""
    if deployment.tensorrt is None:
        return
    command = server_command(Docker(image(deployment)), deployment, _ADDRESSES).words
    for what, word in command_problems(deployment, command):
        yield Finding(
            what,
            "container command",
            _WHY.get(word.partition("=")[0], _OTHERWISE),
            "This is a fault of the toolkit: report it with the deployment file.",
        )


def command_problems(deployment: Deployment, command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The differences from what the deployment and the facts require, each with its word."""
    wanted_image = _image(deployment)
    if wanted_image not in command:
        yield f"does not run the image {wanted_image}", wanted_image
        return
    at = command.index(wanted_image)
    options, served = command[:at], command[at + 1 :]
    wanted = Counter(_options(deployment))
    there = Counter(word for word in options if not word.startswith("--name="))
    for word in (wanted - there).elements():
        yield f"lacks {word}", word
    for word in (there - wanted).elements():
        yield f"has {word}, which nobody asked for", word
    yield from _served_problems(deployment, served)


def _image(deployment: Deployment) -> str:
    assert deployment.tensorrt is not None
    image: str = launch_rules()["containers"]["image"]
    return deployment.tensorrt.image or image.replace("TAG", deployment.tensorrt.container)


def _options(deployment: Deployment) -> Iterator[str]:
    yield from ("docker", "run", "--rm", "--init", "--pull=never", "--gpus=all")
    settings = launch_rules()["containers"]["settings"]
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
    """The folders that models load, and those to which links among their files lead."""
    if deployment.target == "tensorrt":
        return {paths.engine_dir(deployment.name, role) for role in deployment.engines()}
    checkpoints = {spec.checkpoint for spec in deployment.engines().values()}
    files = [file for folder in checkpoints for file in folder.glob("*")]
    return checkpoints | {file.resolve().parent for file in files if file.is_symlink()}


def _environment(deployment: Deployment) -> Mapping[str, str]:
    user = {"HOME": "/tmp", "USER": "tts"}
    if deployment.target == "llmapi":
        return user
    rules = launch_rules()
    always = rules.get("environment", {}).get("variables", {})
    ranks = rules["orchestrator"]["environment"] if _has_ranks(deployment) else {}
    return {**user, **always, **ranks}


def _served_problems(deployment: Deployment, served: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Mistakes in the command line inside the container, under mpirun if it has ranks."""
    wanted = [
        f"--model-repository={paths.repository_dir(deployment.name)}",
        *(f"--{name}-port={port}" for name, port in _ports().items()),
        *(f"--{name}-address=0.0.0.0" for name in _ports()),
        "--model-control-mode=none",
        *(f"{flag}={_CLOSED_APIS}:{_NO_HEADER}" for flag in CLOSED_BY),
        *(launch_rules()["orchestrator"]["arguments"] if _has_ranks(deployment) else ()),
    ]
    for word in wanted:
        if word not in served:
            yield f"lacks {word}", word
    if deployment.target == "llmapi" and "mpirun" in served:
        yield "has mpirun, under which each model would be one rank of a larger job", "mpirun"
    if _has_ranks(deployment) and "mpirun" not in served:
        yield "lacks mpirun, which spawns the ranks", "mpirun"
    binary = [at for at, word in enumerate(served) if word.endswith("/tritonserver")]
    if len(binary) != 1:
        yield "does not run tritonserver", "tritonserver"
        return
    known = set(launch_rules()["tritonserver_flags"])
    for word in served[binary[0] + 1 :]:
        if word.partition("=")[0] not in known:
            yield f"has {word}, which tritonserver does not know", word


def _ports() -> dict[str, int]:
    spec = _ADDRESSES
    return {"grpc": spec.grpc_port, "http": spec.http_port, "metrics": spec.metrics_port}


def _has_ranks(deployment: Deployment) -> bool:
    """Whether the server is not the only rank of each engine: all but engines on GPU 0 alone.

    Never with target llmapi, whose models start their ranks themselves.
    """
    if deployment.target == "llmapi":
        return False
    replicas = [gpus for e in deployment.engines().values() for gpus in e.placement.replicas]
    return {gpu for gpus in replicas for gpu in gpus} != {0}
