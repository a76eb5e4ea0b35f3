"""What is asked, each at an address of its own, and the Triton servers behind it."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from tritonclient.grpc import service_pb2

from scripts.bench.instant_server import serve_models
from tts.build.builder import build_engines
from tts.build.spec import Deployment, load_deployment
from tts.build.tokenizer import Tokenizer
from tts.datasets.load import load_problems
from tts.engines import wire
from tts.gateway.observability import ServedRequest, requests_dir
from tts.gateway.observability.request_reader import Query, read_requests
from tts.prompting.chat import generator_prompt
from tts.serving.server.start import start_server

from .load import Outcome

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
    with start_server(deployment) as server:
        yield server.addresses.grpc


@contextmanager
def instant_server(deployment: Deployment, folder: Path) -> Iterator[str]:
    """A server of the same contract whose models take no time; its gRPC address."""
    tokens = Tokenizer(deployment.generator.tokenizer_folder).encode(TEXT)
    with serve_models(deployment, folder, "tokens", tokens) as (addresses, _):
        yield addresses.grpc


TTS = "import sys; sys.argv[0] = 'tts'; from tts.cli import main; main()"
PROMPTS = 64
START_S = 60.0


@dataclass(frozen=True)
class System:
    """A system under test."""

    name: str
    kind: str
    """http or grpc."""
    address: str
    pid: int | None
    """The id of its process; None for the server itself."""


@dataclass(frozen=True)
class Run:
    """A task carried out against one system."""

    outcome: Outcome
    cpu_s: float | None
    """CPU time of the system's process; None for the server itself."""
    begun: float
    """Unix time."""
    ended: float


@contextmanager
def gateway(file: Path, log: Path) -> Iterator[System]:
    """Ours: `tts gateway`."""
    port = free_port()
    words = [sys.executable, "-c", TTS, "gateway", str(file), "--port", str(port)]
    with _process(words, port, log) as pid:
        yield System("tts gateway", "http", f"127.0.0.1:{port}", pid)


@contextmanager
def fastapi(deployment: Deployment, grpc: str, log: Path) -> Iterator[System]:
    """The one that is usually written."""
    port = free_port()
    program = Path(__file__).with_name("fastapi_gateway.py")
    words = [sys.executable, str(program), "--grpc", grpc, "--port", str(port)]
    words += ["--checkpoint", str(deployment.generator.tokenizer_folder)]
    with _process(words, port, log) as pid:
        yield System("FastAPI", "http", f"127.0.0.1:{port}", pid)


def direct(grpc: str) -> System:
    """Triton's gRPC itself."""
    return System("Triton gRPC", "grpc", grpc, None)


def recorded(deployment: Deployment, runs: Sequence[Run]) -> list[ServedRequest]:
    """What our gateway's log of requests has of them."""
    folder = requests_dir(deployment.name)
    queries = [Query(since=run.begun, until=run.ended) for run in runs]
    return [record for query in queries for record in read_requests(folder, query)]


def bodies(system: System, deployment: Deployment, tokens: int, *, stream: bool) -> list[str]:
    """Requests for so many tokens each, whatever the model says."""
    questions = [problem.question for problem in load_problems("demo", limit=PROMPTS)]
    if system.kind == "http":
        return [_chat(deployment, question, tokens, stream) for question in questions]
    return [_message(deployment, question, tokens, stream) for question in questions]


def _chat(deployment: Deployment, question: str, tokens: int, stream: bool) -> str:
    body = {
        "model": deployment.name,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": tokens,
        "temperature": 1.0,
        "seed": 1,
        "ignore_eos": True,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body)


def _message(deployment: Deployment, question: str, tokens: int, stream: bool) -> str:
    tokenizer = Tokenizer(deployment.generator.tokenizer_folder)
    ids = generator_prompt(tokenizer, deployment.generator, question)
    message = service_pb2.ModelInferRequest(model_name=wire.GENERATOR, id="1")
    message.inputs.add(name="input_ids", datatype="INT32", shape=[1, len(ids)])
    message.raw_input_contents.append(ids.tobytes())
    scalars = {
        "input_lengths": len(ids),
        "request_output_len": tokens,
        "end_id": wire.NO_END_ID,
        "temperature": 1.0,
        "seed": 1,
        "streaming": stream,
    }
    for name, value in scalars.items():
        message.inputs.add(name=name, datatype=wire.INPUTS[name], shape=[1, 1])
        message.raw_input_contents.append(wire.scalar(name, value).tobytes())
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    return base64.b64encode(message.SerializeToString()).decode()


@contextmanager
def _process(words: Sequence[str], port: int, log: Path) -> Iterator[int]:
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, start_new_session=True)
    try:
        deadline = time.monotonic() + START_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{words[2:]} did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
