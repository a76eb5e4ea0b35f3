"""Finding a tritonserver: an installed one, the one inside the pip package nvidia-pytriton, or that
of NVIDIA's container, through docker.

The package is never imported (that is slow and patches other libraries); only its files are used.
A container gets everything read-only except for the folder of the gRPC socket.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tts.base import extras, paths
from tts.base.errors import ServerError
from tts.build.spec import Deployment, Target
from tts.build.tensorrt import contract
from tts.build.tensorrt.docker import USER, docker_run

from . import guard
from .ports import Addresses

PACKAGE = "nvidia-pytriton"
WITHOUT = "run engines of target openvino without a server: --server embedded"
PACKAGE_VERSIONS = {"0.7.0": "2.51.0"}
"""Version of the tritonserver inside each known release of the package; the binary does not say."""
STUB = "triton_python_backend_stub"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SERVER_IN_CONTAINER = "/opt/tritonserver/bin/tritonserver"
CONTAINER_HOME = {"HOME": "/tmp"} | USER
"""Any user may run the server; one without an account has no home."""


@dataclass(frozen=True)
class TritonServer:
    """A tritonserver that can run on this machine."""

    binary: Path
    backends: Path
    """Its backend directory; for the bundled server this lacks the Python stub."""
    stub: Path | None
    """The Python stub to add to a bundled server's backends; None if `backends` is complete."""
    libraries: tuple[Path, ...]
    """Folders to put first in its LD_LIBRARY_PATH."""
    shares_python: bool
    """Whether its Python stub is for this interpreter's version, so that models can import ours."""
    source: str
    """Its version and where it comes from, for people."""

    def describe(self) -> str:
        """One line for `tts doctor`: version if known, origin, path."""
        return f"tritonserver {self.source}: {self.binary}"


def how_to_install() -> str:
    """A hint for a machine without the bundled Triton."""
    if sys.version_info >= (3, 13):  # nvidia-pytriton needs numpy 1, which ends with Python 3.12
        return f"The bundled Triton needs Python 3.11 to 3.12: use one of these, or {WITHOUT}."
    return f"Install it: {extras.how_to_install('cpu', 'triton')}\nOr {WITHOUT}."


def find_tritonserver(target: Target = "openvino") -> TritonServer:
    """The tritonserver to use for a target: the one on PATH if it fits, else the bundled one.

    Raises ServerError saying what is missing and what to do.
    """
    installed = _installed()
    if target == "tensorrt":
        if installed and (installed.backends / "tensorrtllm").is_dir():
            return installed
        why = f"{installed.binary} has no tensorrtllm backend" if installed else "none on PATH"
        raise ServerError(
            f"Target tensorrt needs a tritonserver with the tensorrtllm backend ({why}).",
            hint="Run inside NVIDIA's container tritonserver:<version>-trtllm-python-py3.",
        )
    # our models import this interpreter's packages, so the stub must be for the same Python version
    if installed and installed.shares_python:
        return installed
    return _bundled()


def find_runtime(deployment: Deployment) -> TritonServer | Docker:
    """The program that can run the server of a deployment: a tritonserver, or docker with NVIDIA's
    image.

    Raises ServerError saying what is missing and what to do.
    """
    if deployment.target == "openvino":
        return find_tritonserver("openvino")
    tag = os.environ.get(contract.version_variable())  # set inside NVIDIA's containers only
    if tag is not None and tag not in contract.containers():
        raise ServerError(
            f"This container is tritonserver {tag}, which holds another TensorRT-LLM than "
            f"{contract.TENSORRT_LLM}.",
            hint=f"Use {image(deployment)}.",
        )
    try:
        return find_tritonserver(deployment.target)
    except ServerError as error:
        if shutil.which("docker"):
            return Docker(image(deployment))
        raise ServerError(
            error.message, hint=f"Install docker, or run inside the container {image(deployment)}."
        ) from None


def _installed() -> TritonServer | None:
    binary = shutil.which("tritonserver")
    if binary is None:
        return None
    root = Path(binary).resolve().parent.parent
    for backends in (root / "backends", Path("/opt/tritonserver/backends")):
        if backends.is_dir():
            file = root / "TRITON_VERSION"
            version = file.read_text().strip() if file.is_file() else "of unknown version"
            shares_python = _is_for_this_python(backends / "python" / STUB)
            source = f"{version} on PATH"
            return TritonServer(Path(binary), backends, None, (), shares_python, source)
    return None


def _is_for_this_python(stub: Path) -> bool:
    return stub.is_file() and f"libpython{PYTHON}.so".encode() in stub.read_bytes()


def _bundled() -> TritonServer:
    system, machine = platform.system(), platform.machine()
    if system != "Linux":
        raise ServerError(
            f"tritonserver runs on Linux; this is {system} ({machine}).",
            hint=f"Use a Linux machine or container (on Windows: WSL 2), or {WITHOUT}.",
        )
    try:
        spec = importlib.util.find_spec("pytriton")
        release = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise ServerError(
            "There is no tritonserver: none on PATH, and the Python package that carries one "
            f"({PACKAGE}) is not installed for {sys.executable}.",
            hint=how_to_install(),
        )
    package = Path(spec.origin).parent
    root = package / "tritonserver"
    binary = root / "bin" / "tritonserver"
    backends = root / "backends"
    stub = root / "python_backend_stubs" / PYTHON / STUB
    for file in (binary, backends / "python" / "libtriton_python.so"):
        if not file.is_file():
            raise ServerError(
                f"{PACKAGE} {release} carries no tritonserver for {machine}: {file} is missing.",
                hint=f"Reinstall it ({sys.executable} -m pip install --force-reinstall {PACKAGE}), "
                "or put a tritonserver on PATH.",
            )
    if not stub.is_file():
        have = ", ".join(sorted(folder.name for folder in stub.parent.parent.glob("3.*")))
        raise ServerError(
            f"{PACKAGE} {release} has no Python backend for Python {PYTHON} (it has {have}).",
            hint="Install the toolkit for one of these Python versions.",
        )
    _require_numpy_1(release)
    libraries = (package.parent / "nvidia_pytriton.libs", *_python_library())
    version = PACKAGE_VERSIONS.get(release, "of unknown version")
    source = f"{version} in {PACKAGE} {release}"
    return TritonServer(binary, backends, stub, libraries, True, source)


def _require_numpy_1(release: str) -> None:
    """Raise ServerError for a numpy whose arrays the bundled stub would misread.

    It was compiled for the structures of numpy 1: it starts, takes every array for empty, and then
    requests wait for ever. pip replaces numpy with no more than a warning.
    """
    numpy = importlib.metadata.version("numpy")
    bound = any(need.startswith("numpy<2") for need in importlib.metadata.requires(PACKAGE) or ())
    if not bound or int(numpy.partition(".")[0]) < 2:
        return
    pandas = " 'pandas<3'" if importlib.util.find_spec("pandas") else ""  # 3 needs numpy 2
    raise ServerError(
        f"The tritonserver of {PACKAGE} {release} cannot read the arrays of numpy {numpy}, which "
        f"is installed for {sys.executable}.",
        hint=f"Install numpy 1 again: {sys.executable} -m pip install 'numpy<2'{pandas}\n"
        f"Or {WITHOUT}.",
    )


def _python_library() -> tuple[Path, ...]:
    """Folder of this interpreter's shared library, empty if the loader knows it anyway."""
    name = f"libpython{PYTHON}.so.1.0"
    for folder in (sysconfig.get_config_var("LIBDIR"), Path(sys.base_prefix) / "lib"):
        if folder and (Path(folder) / name).is_file():
            return (Path(folder),)
    if ctypes.util.find_library(f"python{PYTHON}"):
        return ()
    raise ServerError(
        f"The Python backend of tritonserver needs {name}, which this Python ({sys.base_prefix}) "
        "was built without.",
        hint=f"Install it (Debian, Ubuntu: apt install libpython{PYTHON}), or use a Python with a "
        "shared library, such as uv's or pyenv's with --enable-shared.",
    )


def image(deployment: Deployment) -> str:
    """The container image of a deployment of target tensorrt."""
    return contract.container_image(deployment.tensorrt_block.container)


def container_folders(deployment: Deployment) -> list[Path]:
    """Folders that a container needs from this machine: the repository, and what models load."""
    engines = (paths.engine_dir(deployment.name, role) for role in deployment.engines())
    return [paths.repository_dir(deployment.name), *dict.fromkeys(engines)]


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
            variables=CONTAINER_HOME | variables,
        )
        return list(run)


def remove_container_command(name: str) -> list[str]:
    """The command that removes a container, running or not."""
    return ["docker", "rm", "--force", name]


def remove_container(name: str) -> None:
    """Remove a container of ours; it may be gone already."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            remove_container_command(name),
            capture_output=True,
            timeout=guard.LAST_S,
            check=False,
        )
