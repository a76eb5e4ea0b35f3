"""Tiny checkpoints, made as a user would with transformers; a stand-in of NVIDIA's toolchain."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import tokenizers
from tests.build.stand_in_build import STANDIN, TOOLS, install_version

from tts.build.spec import Deployment
from tts.build.tensorrt import contract
from tts.checks.prompts import APART

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VOCABULARY = 128
CHAT_TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"
SHAPE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}


def write_tokenizer(folder, size=VOCABULARY):
    words = ["<unk>", "<bos>", "<eos>", "+", "-"]
    told_apart = {word for pair in APART for text in pair for word in text.split()}
    english = sorted(told_apart - set(words))
    words += [f"w{index}" for index in range(len(words), size - len(english))] + english
    vocabulary = {word: index for index, word in enumerate(words)}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<eos>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing that a test builds lands in the checkout."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="session")
def make_model(torch):
    """Make a random transformers model: make_model("LlamaForCausalLM", seed=0, **config)."""
    import transformers

    def make(architecture="LlamaForCausalLM", seed=0, **config):
        torch.manual_seed(seed)
        kind = getattr(transformers, architecture)
        model = kind(kind.config_class(**(SHAPE | config))).eval()
        with torch.no_grad():  # fresh norms and biases are ones and zeros, which hide mistakes
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        return model

    return make


@pytest.fixture
def make_checkpoint(tmp_path, torch, make_model):
    """Save a random model: make_checkpoint("LlamaForCausalLM", name=..., shard=..., **config)."""

    def make(
        architecture="LlamaForCausalLM",
        *,
        name="checkpoint",
        dtype="float32",
        shard="1GB",
        seed=0,
        **config,
    ):
        model = make_model(architecture, seed, **config).to(getattr(torch, dtype))
        folder = tmp_path / name
        model.save_pretrained(folder, max_shard_size=shard)
        write_tokenizer(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def saved_llama(tmp_path_factory, make_model):
    folder = tmp_path_factory.mktemp("saved") / "llama"
    make_model().save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture
def llama(saved_llama, tmp_path):
    """A small untied Llama checkpoint of the test's own."""
    return Path(shutil.copytree(saved_llama, tmp_path / "llama"))


@pytest.fixture
def edit_config(llama):
    """Change config.json of `llama`; a field set to ... is removed."""

    def edit(**fields):
        file = llama / "config.json"
        data = json.loads(file.read_text()) | fields
        file.write_text(json.dumps({k: v for k, v in data.items() if v is not ...}))
        return llama

    return edit


def pair(target, checkpoint, gpu="h100", **fields):
    """A deployment of one checkpoint in both roles.

    `container` and `launcher` are those of the block tensorrt; other fields are both engines'.
    """
    options = {name: fields.pop(name) for name in ("container", "launcher") if name in fields}
    engine = {
        "checkpoint": checkpoint,
        "precision": "fp32" if target == "openvino" else "bf16",
        "max_batch_size": 4 if target == "openvino" else 8,
        "max_num_tokens": 64 if target == "openvino" else 256,
        "max_seq_len": 128,
        "kv_cache": {"tokens": 1024},
    } | fields
    return Deployment.model_validate(
        {
            "name": "test",
            "target": target,
            "tensorrt": None if target == "openvino" else {"gpu": gpu} | options,
            "generator": engine | {"in_flight_requests": 4},
            "verifier": engine | {"in_flight_tokens": 1024},
        }
    )


@pytest.fixture
def deployment(llama):
    """A deployment of `llama` for a CPU; keywords override fields of both engines."""
    return lambda **fields: pair("openvino", **({"checkpoint": llama} | fields))


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Put the stand-in toolchain first on PATH; the folder is where it notes what it was asked."""
    state, tools, site = (tmp_path / name for name in ("state", "bin", "site"))
    state.mkdir()
    tools.mkdir()
    # without site-packages, which it does not need; as a module it is compiled once
    python = f"PYTHONPATH={STANDIN} exec {sys.executable} -S -c"
    for tool in TOOLS:
        script = tools / tool
        code = f"import sys, toolchain; toolchain.run({tool!r}, *sys.argv[1:])"
        script.write_text(f'#!/bin/sh\n{python} "{code}" "$@"\n')
        script.chmod(0o755)
    shutil.copytree(STANDIN / "site", site, ignore=shutil.ignore_patterns("__pycache__"))
    install_version(site, "1.2.1")
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("TTS_STANDIN_STATE", str(state))
    monkeypatch.setenv("TTS_STANDIN_SITE", str(site))
    monkeypatch.setenv("TTS_STANDIN_API", str(STANDIN / "python_api.json"))
    monkeypatch.delenv(contract.version_variable(), raising=False)
    return state


@pytest.fixture
def misbehave(state):
    """Tell the stand-in what to do wrong from now on; nothing: to behave."""

    def tell(**how):
        (state / "misbehaviour.json").write_text(json.dumps(how))

    return tell


@pytest.fixture
def deploy(llama, state):
    """A deployment of `llama` for a GPU; keywords override fields of both engines."""

    def make(gpu="h100", **fields):
        return pair("tensorrt", llama, gpu, **fields)

    return make
