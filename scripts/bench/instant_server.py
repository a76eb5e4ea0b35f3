"""A Triton server over a benchmark's own models, which answer at once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tts.build.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.command import environment
from tts.serving.command.ports import Addresses, choose_addresses
from tts.serving.command.server_command import ServerCommand, arguments
from tts.serving.command.tritonserver import find_tritonserver
from tts.serving.server import probe
from tts.serving.server.launch import launch

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
"""Configuration of a verifier that is one Python model, in the ensemble's place."""


@contextmanager
def serve_models(
    deployment: Deployment, folder: Path, write_models: Callable[[Deployment, Path], None]
) -> Iterator[tuple[Addresses, psutil.Process]]:
    """A server of the deployment's contract: its addresses and its process.

    `write_models` writes the model repository into the folder it is given. Raises ServerError.
    """
    runtime = find_tritonserver("openvino")
    repository = folder / "models"
    write_models(deployment, repository)
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
        yield addresses, psutil.Process(launched.server.pid)
    finally:
        launched.stop()
