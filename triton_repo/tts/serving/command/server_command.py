"""The command that runs a server: tritonserver itself, or NVIDIA's container around it."""

from __future__ import annotations

import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path

from tts.build import paths
from tts.build.spec import Deployment

from . import container, environment
from .container import Docker
from .ports import Addresses
from .tritonserver import TritonServer

Runtime = TritonServer | Docker
"""What runs a server: one found on this machine, or one in a container."""

EXIT_TIMEOUT_S = 2
"""How long a stopping Triton waits for requests in flight; no client reads them any more."""
_CLOSED_APIS = "shared-memory,model-repository,trace,logging"


@dataclass(frozen=True)
class ServerCommand:
    """One server, not yet launched."""

    words: list[str]
    variables: dict[str, str]
    """Environment variables to add to this machine's."""
    shm_prefix: str
    """Part of the command line of every process that the server starts on this machine."""
    container: str = ""
    """Name of the container that it runs in, if any."""

    def __str__(self) -> str:
        setting = [f"{key}={value}" for key, value in self.variables.items()]
        return shlex.join([*(["env", *setting] if setting else []), *self.words])


def server_command(runtime: Runtime, deployment: Deployment, addresses: Addresses) -> ServerCommand:
    """The command for one attempt to start: names and keys in it are random, used once."""
    repository = paths.repository_dir(deployment.name)
    # short and unique: it names the shared memory files and marks the stub processes as ours
    shm_prefix = f"tts-{secrets.token_hex(6)}-"
    key = secrets.token_hex(16)
    if isinstance(runtime, Docker):
        served = arguments(repository, container.inside(addresses), shm_prefix, key)
        words, variables = tensorrt_command(deployment, container.TRITONSERVER, served)
        name = f"{shm_prefix}{deployment.name}"
        folders = container.folders(deployment)
        return ServerCommand(
            runtime.run(name, addresses, folders, variables, words), {}, shm_prefix, name
        )
    backends = environment.backends(runtime, environment.folder(deployment))
    served = arguments(repository, addresses, shm_prefix, key)
    served.append(f"--backend-directory={backends}")
    if deployment.target == "tensorrt":
        words, variables = tensorrt_command(deployment, str(runtime.binary), served)
        return ServerCommand(words, variables, shm_prefix)
    return ServerCommand([str(runtime.binary), *served], {}, shm_prefix)


def arguments(
    repository: Path, addresses: Addresses, shm_prefix: str, key: str | None
) -> list[str]:
    """The arguments of tritonserver for any target.

    `key`, if any, locks the APIs that could change or inspect the server: no client is given it.
    """
    grpc, http = "--grpc-restricted-protocol", "--http-restricted-api"
    closed = [f"{flag}={_CLOSED_APIS}:tts-key={key}" for flag in (grpc, http)] if key else []
    return [
        f"--model-repository={repository}",
        "--model-control-mode=none",
        "--disable-auto-complete-config",  # rendered configs are complete; saves a second
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        f"--grpc-address={addresses.host}",
        f"--grpc-port={addresses.grpc_port}",
        f"--http-address={addresses.host}",
        f"--http-port={addresses.http_port}",
        *closed,
        f"--metrics-address={addresses.host}",
        f"--metrics-port={addresses.metrics_port}",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        "--pinned-memory-pool-byte-size=0",  # tensors of a request are a few kilobytes
    ]


def tensorrt_command(
    deployment: Deployment, binary: str, arguments: list[str]
) -> tuple[list[str], dict[str, str]]:
    """The words and environment variables that run TensorRT-LLM engines in one tritonserver.

    With everything on GPU 0 the server is the only rank of every engine (leader mode). Otherwise it
    is the orchestrator: it spawns the ranks of each replica on the GPUs that gpu_device_ids names.
    """
    devices = gpus(deployment)
    if devices == [0]:
        return [binary, *arguments], {}
    # what launch_triton_server.py --multi-model does, but waiting for the server
    pools = [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(devices[-1] + 1)]
    words = ["mpirun", "--allow-run-as-root", "-n", "1", binary, *arguments]
    return [*words, "--enable-peer-access=false", *pools], {
        "TRTLLM_ORCHESTRATOR": "1",
        "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1",
    }


def gpus(deployment: Deployment) -> list[int]:
    """Every GPU that a deployment uses, in order."""
    engines = deployment.engines().values()
    return sorted({gpu for spec in engines for gpus in spec.placement.replicas for gpu in gpus})
