"""The Triton servers that are measured: the demo pair's, and one whose models answer at once."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tts.build.builder import build_engines
from tts.build.errors import ServerError
from tts.build.spec import Deployment, load_deployment
from tts.build.tokenizer import Tokenizer
from tts.serving.command import environment
from tts.serving.command.ports import choose_addresses
from tts.serving.command.server_command import ServerCommand, arguments
from tts.serving.command.tritonserver import find_tritonserver
from tts.serving.repository.render import render_models, template_values
from tts.serving.server import probe
from tts.serving.server.launch import launch
from tts.serving.server.start import start_server

MODELS = Path(__file__).parent / "instant_models"
TEXT = "Adding 12 gives 37 + 58 = 95. Therefore the answer is 95.\n"
READY_S = 60.0

PRM_CONFIG = """
name: "prm"
backend: "python"
max_batch_size: 64
input { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }
input { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] }
input { name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] }
input { name: "return_generation_logits" data_type: TYPE_BOOL dims: [ 1 ] }
output { name: "score" data_type: TYPE_FP32 dims: [ 1 ] }
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def demo_deployment(folder: Path) -> tuple[Path, Deployment]:
    """The demo pair with gRPC on a TCP port, its file and engines in a TTS_HOME of its own."""
    os.environ["TTS_HOME"] = str(folder / "home")
    spec = load_deployment("demo")
    data = spec.model_dump(mode="json", exclude_none=True)
    data["server"] = {"grpc_port": free_port()}
    file = folder / "demo.yaml"
    file.write_text(yaml.safe_dump(data))
    deployment = load_deployment(file)
    build_engines(deployment, verify=False, say=lambda line: None)
    return file, deployment


@contextmanager
def demo_server(deployment: Deployment) -> Iterator[str]:
    """The demo pair's server; its gRPC address."""
    server = start_server(deployment)
    try:
        yield server.addresses.grpc
    finally:
        server.stop()


@contextmanager
def instant_server(deployment: Deployment, folder: Path) -> Iterator[str]:
    """A server of the same contract whose models take no time; its gRPC address."""
    runtime = find_tritonserver("openvino")
    repository = folder / "models"
    _write_models(deployment, repository)
    prepared = environment.prepare(runtime, folder / "runtime")
    addresses = choose_addresses(deployment.server, folder / "grpc:1")
    prefix = f"tts-{secrets.token_hex(6)}-"
    words = [str(runtime.binary), *arguments(repository, addresses, prefix)]
    words.append(f"--backend-directory={prepared.backends}")
    command = ServerCommand(words, {}, prefix, socket=addresses.socket)
    launched = launch(command, prepared.variables, folder / "triton.log")
    try:
        deadline = time.monotonic() + READY_S
        while not probe.is_ready(addresses.grpc):
            launched.require_running()
            if time.monotonic() > deadline:
                raise ServerError(f"The server was not ready within {READY_S:.0f} s.")
            time.sleep(0.05)
        yield addresses.grpc
    finally:
        launched.stop()


def _write_models(deployment: Deployment, target: Path) -> None:
    """The repository: the deployment's own configuration of the generator, and a plain prm."""
    render_models(deployment, template_values(deployment, iteration_log=False), target)
    for model in ("prm_engine", "prm_score", "prm"):
        shutil.rmtree(target / model)
    shutil.copytree(MODELS, target, dirs_exist_ok=True)
    digest = (target / "generator" / "config.pbtxt").read_text().rpartition("deployment_digest")[2]
    own = f'parameters {{ key: "deployment_digest{digest}'
    (target / "prm" / "config.pbtxt").write_text(PRM_CONFIG + own)
    tokens = json.dumps(Tokenizer(deployment.generator.checkpoint).encode(TEXT))
    with (target / "generator" / "config.pbtxt").open("a") as config:
        config.write(f'\nparameters {{ key: "tokens" value {{ string_value: "{tokens}" }} }}\n')
