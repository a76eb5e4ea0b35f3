"""A deployment whose two models only echo: the real server starts with it in half a second."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tts.base import paths
from tts.build.spec import Deployment
from tts.serving.repository import render as repository
from tts.serving.repository.digest import DIGEST, deployment_digest
from tts.serving.repository.render import parse_config

TEMPLATES = Path(__file__).parent / "templates"
ENGINES = {"generator": SimpleNamespace(), "verifier": SimpleNamespace(label_token_ids=(7, 9))}


def serve_echo(patch: pytest.MonkeyPatch, templates: Path) -> None:
    """Render the models of this folder, whatever the deployment."""

    def configs(deployment: Deployment, **_: object) -> dict[str, Any]:
        found = {
            file.parent.name: parse_config(file) for file in templates.glob("*/*/config.pbtxt")
        }
        for config in found.values():
            config.parameters[DIGEST].string_value = deployment_digest(deployment)
        return found

    patch.setattr(paths, "templates_dir", lambda: templates)
    patch.setattr(repository, "model_configs", configs)
    patch.setattr(repository, "require_current", lambda deployment: ENGINES)


def make_deployment(
    name: str = "echo", *, checkpoint: Path = Path("/nowhere"), **server: object
) -> Deployment:
    engine = {
        "checkpoint": checkpoint,
        "precision": "fp32",
        "max_batch_size": 4,
        "max_num_tokens": 64,
        "max_seq_len": 64,
        "kv_cache": {"tokens": 64},
        "threads": 1,  # there is no model whose work would be divided
    }
    return Deployment.model_validate(
        {
            "name": name,
            "target": "openvino",
            "generator": {**engine, "in_flight_requests": 4},
            "verifier": {**engine, "in_flight_tokens": 64},
            "server": server,
        }
    )


def make_tensorrt(
    name: str = "pair",
    *,
    checkpoint: Path = Path("/models/Llama3.1-8B-PRM-Deepseek-Data"),
    generator: dict[str, object] | None = None,
    verifier: dict[str, object] | None = None,
    target: str = "tensorrt",
    launcher: str = "auto",
    **server: object,
) -> Deployment:
    """A deployment for NVIDIA GPUs: two engines on GPU 0 unless told otherwise."""
    engine: dict[str, object] = {
        "checkpoint": checkpoint,
        "precision": "bf16",
        "max_batch_size": 64,
        "max_num_tokens": 2048,
        "max_seq_len": 4096,
        "kv_cache": {"tokens": 65536},
    }
    return Deployment.model_validate(
        {
            "name": name,
            "target": target,
            "generator": {**engine, "in_flight_requests": 64, **(generator or {})},
            "verifier": {**engine, "in_flight_tokens": 8192, **(verifier or {})},
            "server": server,
            "tensorrt": {"gpu": "h100", "launcher": launcher},
        }
    )


PATIENCE_S = 120.0
"""For what takes a second on an idle machine; nothing waits so long that goes well."""
ECHO_PROGRAM = """
import sys
sys.path.insert(0, {here!r})
import pytest
from conftest import *
patch = pytest.MonkeyPatch()
serve_echo(patch, Path({templates!r}))
"""


def echo_program(templates: Path, code: str, **options: Any) -> subprocess.Popen[str]:
    """A process that runs this code where the echo models are all there is to serve."""
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", ECHO_PROGRAM.format(here=here, templates=str(templates)) + code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        **options,
    )


def let_initialize(templates: Path, code: str, model: str = "common/prm") -> None:
    """Let an echo model run this code when it loads."""
    with (templates / model / "1" / "model.py").open("a") as file:
        file.write("\n    def initialize(self, args):\n" + textwrap.indent(code, " " * 8) + "\n")


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.02)


def left_of(*words: str) -> list[str]:
    """What is left of a server, by parts of names: its processes and shared memory regions."""
    processes = [
        " ".join(process.info["cmdline"])
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and any(word in part for word in words for part in process.info["cmdline"] or ())
    ]
    memory = [path.name for path in Path("/dev/shm").iterdir()]
    return processes + [name for name in memory if any(word in name for word in words)]


@pytest.fixture
def tensorrt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Deployment]:
    """Makes deployments of target tensorrt, everything of which lies in the test's folder."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    return make_tensorrt


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    """A copy of the echo templates that a test may change."""
    folder = tmp_path / "templates"
    shutil.copytree(TEMPLATES, folder)
    return folder


@pytest.fixture
def echo(
    tmp_path: Path, templates: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Deployment]:
    """Makes deployments of the echo models, everything of which lies in the test's folder."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    serve_echo(monkeypatch, templates)
    return make_deployment


@pytest.fixture
def make() -> Callable[..., Deployment]:
    """Makes deployments, and nothing else."""
    return make_deployment


@pytest.fixture
def engines() -> dict[str, SimpleNamespace]:
    """What the build says about the engines, as far as the repository needs it."""
    return ENGINES
