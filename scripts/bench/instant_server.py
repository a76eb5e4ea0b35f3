"""A Triton server over a benchmark's own models, which answer at once."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psutil

from tts.base.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.command import environment
from tts.serving.command.ports import Addresses, choose_addresses
from tts.serving.command.server_command import ServerCommand, arguments
from tts.serving.command.tritonserver import find_tritonserver
from tts.serving.repository.model_configs import model_configs
from tts.serving.repository.render import render_models
from tts.serving.server import probe
from tts.serving.server.launch import launch
from tts.serving.server.triton import Triton

MODELS = Path(__file__).with_name("instant_models")
READY_S = 60.0


@contextmanager
def serve_models(
    deployment: Deployment, folder: Path, kind: Literal["steps", "tokens"], canned: list[Any]
) -> Iterator[tuple[Addresses, psutil.Process]]:
    """A server of the deployment's contract: its addresses and its process.

    Its generator writes whole steps or single tokens, those that are `canned`. Raises ServerError.
    """
    runtime = find_tritonserver("openvino")
    repository = folder / "models"
    _write_models(deployment, repository, kind, canned)
    own = folder / "runtime"
    variables = environment.prepare(runtime, own)
    addresses = choose_addresses(deployment.server, folder / "grpc:1")
    prefix = f"tts-{secrets.token_hex(6)}-"
    words = [str(runtime.binary), *arguments(repository, addresses, prefix)]
    words.append(f"--backend-directory={environment.backends(runtime, own)}")
    command = ServerCommand(words, {}, prefix, addresses, private=True)
    service = Triton(deployment)
    service.folder, service.log = folder, folder / "triton.log"
    launched = launch(service, command, variables)
    try:
        deadline = time.monotonic() + READY_S
        while not probe.is_ready(addresses.grpc):
            launched.require_running()
            if time.monotonic() > deadline:
                raise ServerError(f"The server was not ready within {READY_S:.0f} s.")
            time.sleep(0.05)
        yield addresses, psutil.Process(launched.server.pid)
    finally:
        launched.stop()


def _write_models(deployment: Deployment, target: Path, kind: str, canned: list[Any]) -> None:
    """The repository: the deployment's own configurations, and the benchmark's models."""
    configs = model_configs(deployment)
    configs["generator"].parameters[kind].string_value = json.dumps(canned)
    render_models(deployment, configs, target)
    for model, ours in (("prm", "prm"), ("generator", kind)):
        shutil.copytree(MODELS / ours, target / model, dirs_exist_ok=True)
