"""The Triton servers that are measured: the demo pair's, and one whose models answer at once."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from scripts.bench.instant_server import PRM_CONFIG, serve_models
from tts.build.builder import build_engines
from tts.build.spec import Deployment, load_deployment
from tts.build.tokenizer import Tokenizer
from tts.serving.repository.render import render_models, template_values
from tts.serving.server.start import start_server

MODELS = Path(__file__).parent / "instant_models"
TEXT = "Adding 12 gives 37 + 58 = 95. Therefore the answer is 95.\n"


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
    with serve_models(deployment, folder, _write_models) as (addresses, _):
        yield addresses.grpc


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
