"""The whole way: tiny engines, built and served as a user's would be."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import tokenizers
from safetensors.numpy import save_file

from tts.build import paths
from tts.build.builder import build_engines
from tts.build.errors import BuildError, ServerError
from tts.build.spec import Deployment
from tts.serving.repository.model_configs import iteration_logs
from tts.serving.server.start import start_server

pytestmark = pytest.mark.server


@pytest.mark.slow
def test_engines_that_were_built_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Deployment]
):
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    deployment = make("tiny", checkpoint=checkpoint, http_port="auto")
    with pytest.raises(BuildError, match="verifier engine of 'tiny' is not ready"):
        start_server(deployment)
    build_engines(deployment, verify=False, say=lambda line: None)
    with start_server(deployment) as running:
        running.check()
        assert sorted(running.health.stubs.values()) == ["generator", "prm"]
        assert pod_probe(running.addresses.http_port) == ""
        for file in iteration_logs(deployment).values():
            while not file.read_text():  # written twice a second
                time.sleep(0.05)
        stubs = {model: stub.process() for stub, model in running.health.stubs.items()}
        (engine,) = stubs["generator"].children()
        os.kill(engine.pid, signal.SIGKILL)
        while stubs["generator"].status() != psutil.STATUS_ZOMBIE:  # a model ends with its engine
            time.sleep(0.05)
        with pytest.raises(ServerError, match="stub of model generator"):
            running.check()
        assert "/v2/models/" in pod_probe(running.addresses.http_port)
    for file in iteration_logs(deployment).values():  # the request that proved it ready
        assert json.loads(file.read_text().splitlines()[0])["requests_total"] == 1


def pod_probe(http_port: int) -> str:
    """What the probe of the Kubernetes and compose manifests says of a server; nothing if well."""
    probe = paths.templates_dir() / "deploy" / "probe.py"
    command = [sys.executable, "-I", "-S", str(probe), str(http_port)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


VOCABULARY, HIDDEN, LAYERS, HEADS, INNER = 128, 64, 2, 4, 96
CHAT_TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"


def write_checkpoint(folder: Path) -> Path:
    """A tiny Llama of random weights, written with numpy alone."""
    random = np.random.default_rng(0)
    shapes = {"model.embed_tokens": (VOCABULARY, HIDDEN), "lm_head": (VOCABULARY, HIDDEN)}
    for layer in (f"model.layers.{index}." for index in range(LAYERS)):
        shapes |= {f"{layer}self_attn.{p}_proj": (HIDDEN, HIDDEN) for p in "qkvo"}
        shapes |= {f"{layer}mlp.{p}_proj": (INNER, HIDDEN) for p in ("gate", "up")}
        shapes |= {f"{layer}mlp.down_proj": (HIDDEN, INNER)}
        shapes |= {f"{layer}{p}_layernorm": (HIDDEN,) for p in ("input", "post_attention")}
    shapes["model.norm"] = (HIDDEN,)
    tensors = {
        f"{name}.weight": random.normal(0, 0.1, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "intermediate_size": INNER,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    words = ["<unk>", "<bos>", "<eos>", "+", "-", *(f"w{n}" for n in range(5, VOCABULARY))]
    vocabulary = {word: index for index, word in enumerate(words)}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<eos>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
