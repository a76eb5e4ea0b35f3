"""A minimal launch of the bundled tritonserver for the host's own tests."""

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import jinja2

from tts.build import paths
from tts.build.spec import Deployment

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Server:
    grpc: str
    metrics_url: str
    process: subprocess.Popen[bytes]
    log: Path

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(self.metrics_url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}


def render(deployment: Deployment, engine_dirs: dict[str, Path], target: Path) -> None:
    """Render the templates as their README says."""
    templates = paths.templates_dir()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: str(value).lower() if isinstance(value, bool) else value,
    )
    values = {
        "deployment": deployment,
        "generator": deployment.generator,
        "verifier": deployment.verifier,
        "engine_dirs": engine_dirs,
        "iteration_logs": {
            "generator": target / "generator.jsonl",
            "verifier": target / "verifier.jsonl",
        },
        "label_ids": [0, 1],
        "deployment_digest": "test",
    }
    for layer in (templates / "common", templates / deployment.target):
        for file in layer.rglob("*.*"):
            if "__pycache__" in file.parts:
                continue
            copy = target / file.relative_to(layer)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".j2":
                template = environment.get_template(str(file.relative_to(templates)))
                copy.with_suffix("").write_text(template.render(values))
            else:
                copy.write_bytes(file.read_bytes())
    for config in target.glob("*/config.pbtxt"):
        (config.parent / "1").mkdir(exist_ok=True)


@contextlib.contextmanager
def serve(repository: Path, folder: Path):
    """Run a server on a model repository until the block ends."""
    package = Path(importlib.util.find_spec("pytriton").origin).parent
    bundled = package / "tritonserver"
    backend = folder / "backends" / "python"
    backend.mkdir(parents=True)
    stub = bundled / "python_backend_stubs" / VERSION / "triton_python_backend_stub"
    for file in [*(bundled / "backends" / "python").iterdir(), stub]:
        (backend / file.name).symlink_to(file)
    ports = [_free_port() for _ in range(3)]
    libraries = [package.parent / "nvidia_pytriton.libs", sysconfig.get_config_var("LIBDIR")]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "PATH": f"{_interpreter(folder / 'python')}{os.pathsep}{os.environ['PATH']}",
    }
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                str(bundled / "bin" / "tritonserver"),
                f"--model-repository={repository}",
                f"--backend-directory={folder / 'backends'}",
                f"--backend-config=python,shm-region-prefix-name=test{os.getpid()}_",
                "--disable-auto-complete-config",
                "--grpc-address=127.0.0.1",
                "--http-address=127.0.0.1",
                "--metrics-address=127.0.0.1",
                f"--grpc-port={ports[0]}",
                f"--http-port={ports[1]}",
                f"--metrics-port={ports[2]}",
                "--exit-timeout-secs=3",
                "--pinned-memory-pool-byte-size=0",
            ],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_ready(f"http://127.0.0.1:{ports[1]}/v2/health/ready", process, log)
        yield Server(
            f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[2]}/metrics", process, log
        )
    finally:
        process.terminate()
        process.wait(30)


def _interpreter(folder: Path) -> Path:
    """The models' Python ignores PYTHONPATH and belongs to the first python3 on PATH."""
    packages = folder / "lib" / f"python{VERSION}" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    real = Path(sys.executable).resolve()
    (folder / "bin" / "python3").symlink_to(real)
    (folder / "pyvenv.cfg").write_text(f"home = {real.parent}\n")
    entries = [str(Path(entry).resolve()) for entry in sys.path if Path(entry).is_dir()]
    (packages / "here.pth").write_text("\n".join(entries))
    return folder / "bin"


def _wait_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the server is not ready:\n{log.read_text()[-4000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
