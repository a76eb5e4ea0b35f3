"""The command that runs an engine which is a server of its own: here, or in its container."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tts.base.errors import ServerError
from tts.build.spec import Deployment, Role, StartedSpec, StartedTarget
from tts.build.started.command import command_of
from tts.build.started.engines import ENGINES
from tts.build.tensorrt.docker import docker_run, with_link_targets

from .container import HOME
from .ports import Addresses
from .server_command import ServerCommand, new_mark

HUB_CACHE = "HF_HOME"
_PACKAGES = {"vllm": "vllm", "sglang": "sglang", "trtllm-serve": "tensorrt_llm"}
"""Beginnings of the names of the Python packages that hold an engine."""


def engine_command(
    deployment: Deployment,
    role: Role,
    addresses: Addresses,
    mps: Mapping[str, str],
    program: Path | None = None,
) -> ServerCommand:
    """The command for one attempt to start the engine of a role.

    `mps` are the variables that lead it to an MPS daemon, `program` is where it was found (see
    `find_program`); unset: a name on PATH. A key of `addresses` is in the environment only, which
    docker passes on by the variables' names. Raises ConfigError as `command_of`.
    """
    spec, mark = deployment.started()[role], new_mark()
    host = "0.0.0.0" if spec.container else addresses.host
    key = addresses.api_key or None
    command = command_of(deployment, role, addresses.http_port, host=host, api_key=key)
    name, *words = command.argv
    variables = {**command.env, **mps}
    if not spec.container:
        return ServerCommand([str(program or name), *words], variables, mark, addresses)
    container = f"{mark}{deployment.name}-{role}"
    run = docker_run(
        container,
        spec.container,
        words,
        gpus="all" if deployment.gpu else None,
        options=(
            "--pull=never",  # the user decides when to download 10 GB
            "--security-opt=no-new-privileges",
            *(("--ipc=host",) if mps else ()),  # its clients share memory with the daemon
            f"--entrypoint={name}",
            f"--publish={addresses.host}:{addresses.http_port}:{addresses.http_port}",
            *(f"--env={variable}" for variable in variables),
        ),
        reads=with_link_targets(_folders(spec)),
        writes=[hub_cache(), *map(Path, mps.values())],
        variables=HOME | {HUB_CACHE: str(hub_cache())},
    )
    return ServerCommand(list(run), variables, mark, addresses, container)


def find_program(role: Role, spec: StartedSpec) -> Path:
    """The program of an engine that runs here, or docker.

    Raises ServerError with what installs it.
    """
    engine = ENGINES[spec.target]
    if spec.container:
        if docker := shutil.which("docker"):
            return Path(docker)
        raise ServerError(
            f"{role}.container is {spec.container}, and there is no docker on PATH.",
            hint=f"Install docker, or remove container and install the engine: {engine.install}",
        )
    name = engine.program[0]
    place = spec.executable and (spec.executable / "bin" / name)
    for file in filter(None, (place, spec.executable)):
        if file.is_file() and os.access(file, os.X_OK):
            return file.absolute()
    if spec.executable:
        raise ServerError(
            f"{role}.executable is {spec.executable}, which is no program, and no environment with "
            f"bin/{name}.",
            hint=f"Set it to the path of {name}. It is installed by: {engine.install}",
        )
    if path := shutil.which(name):
        return Path(path).absolute()
    raise ServerError(
        f"The {role} runs on {spec.target}, and there is no {name} on PATH.",
        hint=f"Install it: {engine.install}\nOr name it, if it is elsewhere: {role}.executable; or "
        f"its image: {role}.container: {engine.image}",
    )


def installed_version(program: Path, target: StartedTarget) -> str | None:
    """The version of the Python package beside an engine's program; None where it has none."""
    package = _PACKAGES.get(target)
    if package is None:
        return None
    for folder in program.resolve().parent.parent.glob("lib/python3*/site-packages"):
        for record in folder.glob(f"{package}*.dist-info"):
            name, _, version = record.stem.partition("-")
            if name in (package, f"{package}_cpu"):
                return version
    return None


def hub_cache() -> Path:
    """The folder in which huggingface_hub keeps what it has downloaded."""
    return Path(os.environ.get(HUB_CACHE) or "~/.cache/huggingface").expanduser()


def _folders(spec: StartedSpec) -> list[Path]:
    """The folders of this machine that an engine reads."""
    places = [each for each in (spec.checkpoint, spec.tokenizer) if each and each.is_absolute()]
    return [each.parent if each.is_file() else each for each in places]
