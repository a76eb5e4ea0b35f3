"""Running a server in NVIDIA's container, through docker.

One rule about paths: everything that the container needs is mounted at the path it has outside,
read-only except for the folder of the gRPC socket. So the same model repository serves on bare
metal, in a container and in a pod.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tts.build import paths
from tts.build.spec import Deployment, Role
from tts.build.tensorrt.contract import container_image

from . import guard
from .ports import Addresses

TRITONSERVER = "/opt/tritonserver/bin/tritonserver"
"""The server inside the container."""
SHARED_MEMORY = "2g"
STACK_BYTES = 67108864
# any user may run the server; one without an account has neither a home nor a name
HOME = {"HOME": "/tmp", "USER": "tts"}


def image(deployment: Deployment) -> str:
    """The container image of a deployment of target tensorrt."""
    assert deployment.tensorrt is not None  # the spec requires it
    return container_image(deployment.tensorrt.container)


def loaded(deployment: Deployment) -> dict[Role, Path]:
    """The compiled engine that each model loads."""
    return {role: paths.engine_dir(deployment.name, role) for role in deployment.engines()}


def folders(deployment: Deployment) -> list[Path]:
    """Folders that a container needs from this machine: the repository, and what models load."""
    wanted = dict.fromkeys(loaded(deployment).values())
    return [paths.repository_dir(deployment.name), *wanted, *link_targets(wanted)]


def link_targets(wanted: Collection[Path]) -> list[Path]:
    """Folders of the files that links in these folders lead to.

    Files of a checkpoint may be links into a cache; engines are built as files.
    """
    linked = {
        file.resolve().parent
        for folder in wanted
        if folder.is_dir()
        for file in folder.iterdir()
        if file.is_symlink()
    }
    return sorted(linked - set(wanted))


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
        variables: Mapping[str, str],
        words: Sequence[str],
    ) -> list[str]:
        """The command that runs `words` in a container that is removed when they end.

        All GPUs are visible, so that they have the same numbers inside; gpu_device_ids chooses.
        """
        ports = (addresses.grpc_port, addresses.http_port, addresses.metrics_port)
        socket = Path(addresses.socket).parent
        return [
            *("docker", "run", "--rm", "--init", f"--name={name}"),
            "--pull=never",  # the user decides when to download 14 GB
            "--gpus=all",
            f"--shm-size={SHARED_MEMORY}",
            "--ulimit=memlock=-1",
            f"--ulimit=stack={STACK_BYTES}",
            f"--user={os.getuid()}:{os.getgid()}",
            "--security-opt=no-new-privileges",
            *(f"--publish={addresses.host}:{port}:{port}" for port in ports if port),
            *(f"--mount=type=bind,src={path},dst={path},readonly" for path in folders),
            *([f"--mount=type=bind,src={socket},dst={socket}"] if addresses.socket else []),
            *(f"--env={key}={value}" for key, value in {**HOME, **variables}.items()),
            self.image,
            *words,
        ]


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
