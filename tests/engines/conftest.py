"""A tiny random pair, exported once: it runs every path of the engine host in milliseconds."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file
from tests.engines.engine_host import EngineHost
from tests.engines.triton_client import Client

from tts.base import paths
from tts.build.builder import build_engines
from tts.build.checkpoint import expected_tensors
from tts.build.manifest import read_engine_config
from tts.build.model_config import read_model_config
from tts.build.spec import Deployment
from tts.engines.generate_request import GenerateRequest
from tts.engines.opening import opening_of
from tts.engines.responses import Response
from tts.serving.server.start import RunningServer, start_server
from tts.serving.server.triton import Triton

VOCABULARY = 128
LABELS = (3, 4)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_checkpoint(folder: Path, seed: int) -> None:
    """A Llama checkpoint of random weights, large enough to make varied text."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    random = np.random.default_rng(seed)
    shapes = expected_tensors(read_model_config(folder))
    weights = {
        name: (random.standard_normal(shape) * 0.15 + (len(shape) == 1)).astype(np.float32)
        for name, shape in shapes.items()
    }
    save_file(weights, folder / "model.safetensors")
    words = ["<unk>", "<bos>", "<eos>", "+", "-"] + [f"w{n}" for n in range(5, VOCABULARY)]
    model = tokenizers.models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>")
    tokenizers.Tokenizer(model).save(str(folder / "tokenizer.json"))
    config = {"chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment of the tiny pair with its engines built; TTS_HOME points at them."""
    root = tmp_path_factory.mktemp("pair")
    engine = {"precision": "fp32", "max_num_tokens": 128, "kv_cache": {"tokens": 2048}}
    for seed, role in enumerate(("generator", "verifier")):
        write_checkpoint(root / role, seed)
    engine |= {"max_batch_size": 8, "max_seq_len": 256}
    deployment = Deployment(
        name="tiny",
        target="openvino",
        generator={**engine, "checkpoint": root / "generator", "in_flight_requests": 8},
        verifier={**engine, "checkpoint": root / "verifier", "in_flight_tokens": 1024},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(root / "home"))
        build_engines(deployment, verify=False, say=lambda line: None)
        yield deployment


GRADES = {"w7": 1.0, "w9": 0.5, "+": 0.25, "-": 0.0}


def same_as_generator(pair: Deployment, labels: dict[str, float] = GRADES) -> Deployment:
    """The generator of a pair in both roles."""
    verifier = {"same_as": "generator", "labels": labels, "in_flight_tokens": 1024}
    data = pair.model_dump(mode="json", exclude_unset=True, exclude={"verifier"})
    return Deployment.model_validate({**data, "name": "one", "verifier": verifier})


@pytest.fixture(scope="session")
def one_engine(pair: Deployment) -> Deployment:
    """The pair's generator in both roles, built."""
    deployment = same_as_generator(pair)
    (report,) = build_engines(deployment, verify=False, say=lambda line: None)
    assert report.role == "generator"
    return deployment


class Runner:
    """An EngineHost with a blocking way to run requests."""

    def __init__(self, host: EngineHost) -> None:
        self.host = host

    def run(self, *requests: GenerateRequest) -> list[Response]:
        """Submit all at once; the final responses, in order."""
        return [replies[-1] for replies in self.replies(*requests)]

    def replies(self, *requests: GenerateRequest) -> list[list[Response]]:
        """Submit all at once; every response of each."""
        done = threading.Semaphore(0)
        collected: list[list[Response]] = [[] for _ in requests]

        def collect(index: int) -> Callable[[Response], None]:
            def on_response(response: Response) -> None:
                collected[index].append(response)
                if response.final:
                    done.release()

            return on_response

        callbacks = map(collect, range(len(requests)))
        # between two steps: which requests compute together does not depend on the machine's load
        self.host.call(lambda: list(map(self.host.submit, requests, callbacks)))
        for _ in requests:
            assert done.acquire(timeout=30), "no final response"
        return collected

    def at_rest(self) -> bool:
        """Whether the engine comes to show that it holds nothing."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            now = self.host.statistics()
            if now.active == now.scheduled == now.blocks_used == now.blocks_reserved == 0:
                return True
            time.sleep(0.01)
        return False


Open = Callable[..., Runner]


@pytest.fixture(scope="session")
def open_host(pair: Deployment) -> Iterator[Open]:
    """Open an engine of the pair: open_host("generator", blocks=..., ...)."""
    hosts: list[EngineHost] = []

    def make(
        role: str = "generator",
        *,
        of: Deployment = pair,
        iteration_log: Path | None = None,
        vocabulary: list[bytes] | None = None,
        **limits,
    ) -> Runner:
        folder = paths.engine_dir(of.name, role)
        host = EngineHost(
            folder,
            read_engine_config(folder),
            replace(opening_of(of, role).limits, **limits),
            iteration_log=iteration_log,
            statistics_s=0.02,
            vocabulary=vocabulary,
        )
        hosts.append(host)
        return Runner(host)

    yield make
    for host in hosts:
        host.close()


@pytest.fixture(scope="module")
def generator(open_host: Open) -> Runner:
    return open_host("generator")


@pytest.fixture(scope="module")
def verifier(open_host: Open) -> Runner:
    return open_host("verifier")


@pytest.fixture(scope="session")
def server(pair: Deployment) -> Iterator[RunningServer]:
    """The pair behind a real server. The files of tests that use it are one group."""
    with start_server(Triton(pair)) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.channel.close()
