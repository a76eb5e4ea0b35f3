"""Running a server in NVIDIA's container, through docker.

Everything that the container needs is mounted read-only except for the folder of the gRPC socket.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tts.base import paths
from tts.build.spec import Deployment, Role
from tts.build.tensorrt.contract import container_image
from tts.build.tensorrt.docker import USER, docker_run

from . import guard
from .ports import Addresses

TRITONSERVER = "/opt/tritonserver/bin/tritonserver"
"""The server inside the container."""
HOME = {"HOME": "/tmp"} | USER
"""Any user may run the server; one without an account has no home."""


def image(deployment: Deployment) -> str:
    """The container image of a deployment of target tensorrt."""
    return container_image(deployment.tensorrt_block.container)


def loaded(deployment: Deployment) -> dict[Role, Path]:
    """The compiled engine that each model loads."""
    return {role: paths.engine_dir(deployment.name, role) for role in deployment.engines()}


def folders(deployment: Deployment) -> list[Path]:
    """Folders that a container needs from this machine: the repository, and what models load."""
    return [paths.repository_dir(deployment.name), *dict.fromkeys(loaded(deployment).values())]


def inside(addresses: Addresses) -> Addresses:
    """Where the server listens in the container: on all interfaces; docker publishes the ports."""
    return replace(addresses, host="0.0.0.0")


@dataclass(frozen=True)
class Docker:
    """The docker command on PATH, and the image it is to run."""

    image: str

    def describe(self) -> str:
        """One line for the terminal."""
        return f"tritonserver in the container {self.image}"

    def run(
        self,
        name: str,
        addresses: Addresses,
        folders: Sequence[Path],
        variables: dict[str, str],
        words: Sequence[str],
    ) -> list[str]:
        """The command that runs `words` in a container that is removed when they end."""
        ports = (addresses.grpc_port, addresses.http_port, addresses.metrics_port)
        run = docker_run(
            name,
            self.image,
            words,
            gpus="all",  # so that they have the same numbers inside; gpu_device_ids chooses
            options=(
                "--pull=never",  # the user decides when to download 14 GB
                "--security-opt=no-new-privileges",
                *(f"--publish={addresses.host}:{port}:{port}" for port in ports if port),
            ),
            reads=folders,
            writes=[Path(addresses.socket).parent] if addresses.socket else [],
            variables=HOME | variables,
        )
        return list(run)


def remove_command(name: str) -> list[str]:
    """The command that removes a container, running or not."""
    return ["docker", "rm", "--force", name]


def remove(name: str) -> None:
    """Remove a container of ours; it may be gone already."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            remove_command(name),
            capture_output=True,
            timeout=guard.LAST_S,
            check=False,
        )
