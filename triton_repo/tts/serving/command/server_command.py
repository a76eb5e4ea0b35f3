"""The command that runs a server: tritonserver or a started engine, here or in a container."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tts.base import paths
from tts.base.errors import ServerError
from tts.build.spec import Deployment, Role, StartedSpec, StartedTarget
from tts.build.started.command import command_of
from tts.build.started.engines import ENGINES
from tts.build.tensorrt.docker import docker_run, with_link_targets
from tts.build.tensorrt.engine_memory import TRANSFER_SIZE, TRANSFER_VARIABLE
from tts.build.tensorrt.gpus import gpus_of, is_orchestrated

from . import environment
from .ports import Addresses
from .tritonserver import (
    CONTAINER_HOME,
    SERVER_IN_CONTAINER,
    Docker,
    TritonServer,
    container_folders,
)

ServerRuntime = TritonServer | Docker
"""What runs a server: one found on this machine, or one in a container."""

EXIT_TIMEOUT_S = 2
"""How long a stopping Triton waits for requests in flight; no client reads them any more."""
MARK = r"tts-[0-9a-f]{12}-"
"""The form of ServerCommand.mark, a regular expression."""
_CLOSED_APIS = "shared-memory,model-repository,trace,logging"
MPIRUN = (
    *("mpirun", "--allow-run-as-root"),
    "--oversubscribe",  # ranks may outnumber the cores that the container was given
    *("--bind-to", "none"),  # else the server and everything it starts share a core
    *("-n", "1"),
)
# Triton can only ask for a header, and its command line is no place for a secret: all users can
# read it. So the header is one that neither HTTP nor HTTP/2 can carry, as its name holds a colon.
_NO_HEADER = "closed:to-all=nobody"


@dataclass(frozen=True)
class ServerCommand:
    """One server, not yet launched."""

    words: list[str]
    variables: dict[str, str]
    """Environment variables to add to this machine's."""
    mark: str
    """Names this start: Triton's shared memory and stubs carry it."""
    addresses: Addresses
    """Where it will listen."""
    container: str = ""
    """Name of the container that it runs in, if any."""
    folder: Path | None = None
    """The working directory that it needs, if any."""
    private: bool = False
    """Whether it makes shared memory that others could read (`guard`)."""

    def __str__(self) -> str:
        setting = [f"--chdir={self.folder}"] if self.folder else []
        setting += [f"{key}={value}" for key, value in self.variables.items()]
        return shlex.join([*(["env", *setting] if setting else []), *self.words])


def server_command(
    runtime: ServerRuntime, deployment: Deployment, addresses: Addresses
) -> ServerCommand:
    """The command for one attempt to start: the names in it are random, used once."""
    repository = paths.repository_dir(deployment.name)
    mark = new_mark()
    if isinstance(runtime, Docker):
        served = arguments(repository, replace(addresses, host="0.0.0.0"), mark)
        words, variables = served_by(deployment, SERVER_IN_CONTAINER, served)
        name = f"{mark}{deployment.name}"
        folders = container_folders(deployment)
        words = runtime.run(name, addresses, folders, variables, words)
        return ServerCommand(words, {}, mark, addresses, name)
    backends = environment.backends(runtime, environment.folder(deployment))
    folder = paths.server_dir(deployment.name)
    near = Path(os.path.relpath(repository, folder))  # why: see `environment`
    served = arguments(near, addresses, mark)
    served.append(f"--backend-directory={backends}")
    words, variables = served_by(deployment, str(runtime.binary), served)
    return ServerCommand(words, variables, mark, addresses, folder=folder, private=True)


def new_mark() -> str:
    """What names one start: short and unique, as it begins the names of shared memory."""
    return f"tts-{secrets.token_hex(6)}-"


def arguments(repository: Path, addresses: Addresses, mark: str) -> list[str]:
    """The arguments of tritonserver for any target.

    The APIs that could change the server or read memory are closed to every client.
    """
    grpc_address, grpc_port = addresses.grpc_arguments
    http = ["--allow-http=false"]
    if addresses.http_port:
        http = [
            f"--http-address={addresses.host}",
            f"--http-port={addresses.http_port}",
            f"--http-restricted-api={_CLOSED_APIS}:{_NO_HEADER}",
        ]
    return [
        f"--model-repository={repository}",
        "--model-control-mode=none",
        "--disable-auto-complete-config",  # rendered configs are complete; saves a second
        f"--backend-config=python,shm-region-prefix-name={mark}",
        f"--grpc-address={grpc_address}",
        f"--grpc-port={grpc_port}",
        f"--grpc-restricted-protocol={_CLOSED_APIS}:{_NO_HEADER}",
        *http,
        f"--metrics-address={addresses.host}",
        f"--metrics-port={addresses.metrics_port}",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        "--pinned-memory-pool-byte-size=0",  # tensors of a request are a few kilobytes
    ]


def served_by(
    deployment: Deployment, binary: str, arguments: list[str]
) -> tuple[list[str], dict[str, str]]:
    """The words and environment variables that run a tritonserver with a deployment's engines.

    With all of TensorRT-LLM's on GPU 0 the server is the only rank of every engine (leader mode).
    Otherwise it is the orchestrator: it spawns the ranks of each replica on the GPUs that
    gpu_device_ids names.
    """
    if deployment.tensorrt is None:
        return [binary, *arguments], {}
    # what the pools came to be is only to be read in the log, at this level
    variables = {TRANSFER_VARIABLE: TRANSFER_SIZE, "TLLM_LOG_LEVEL": "INFO"}
    if not is_orchestrated(deployment):
        launcher = MPIRUN if deployment.tensorrt.launcher == "mpirun" else ()
        return [*launcher, binary, *arguments], variables
    # what launch_triton_server.py --multi-model does, but waiting for the server
    pools = [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(gpus_of(deployment)[-1] + 1)]
    words = [*MPIRUN, binary, *arguments]
    return [*words, "--enable-peer-access=false", *pools], {
        **variables,
        "TRTLLM_ORCHESTRATOR": "1",
        "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1",
    }


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
        variables=CONTAINER_HOME | {HUB_CACHE: str(hub_cache())},
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
