"""A GGUF file is read as the checkpoint that it was made of, and a wrong one is refused by name."""

import json
import struct
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tests.build.conftest import LLAMA3
from tests.build.gguf_files import SPECIAL, TOKENS, gguf_of

from tts.build import paths
from tts.build.checkpoint import open_checkpoint
from tts.build.errors import CheckpointError
from tts.build.gguf.folder import checkpoint_folder
from tts.build.resolve import resolve_models, with_made_folders
from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer

gguf = pytest.importorskip("gguf")
VOCABULARY = len(TOKENS) + 2


@pytest.fixture
def source(make_checkpoint):
    def make(architecture="LlamaForCausalLM", **config):
        sizes = {"hidden_size": 128, "intermediate_size": 128, "head_dim": 32}
        folder = make_checkpoint(architecture, vocab_size=VOCABULARY, **sizes, **config)
        return folder

    return make


def imported(file):
    return checkpoint_folder(file, print)


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("LlamaForCausalLM", {}),
        ("LlamaForCausalLM", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
        ("Qwen2ForCausalLM", {}),
        ("Qwen3ForCausalLM", {}),
    ],
)
def test_every_tensor_is_the_original(source, tmp_path, architecture, config):
    original = source(architecture, **config)
    folder = imported(gguf_of(original, tmp_path / "model.gguf"))
    wanted, found = open_checkpoint(original), open_checkpoint(folder)
    fields = vars(wanted.config) | {"dtype": "float32"}
    assert vars(found.config) == fields
    weights = load_file(folder / "model.safetensors")
    for name, values in load_file(original / "model.safetensors").items():
        np.testing.assert_array_equal(weights[name], values, err_msg=name)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_quantised_values_are_those_of_the_file(source, tmp_path, kind):
    original = source()
    folder = imported(gguf_of(original, tmp_path / "model.gguf", kind))
    stored = gguf.GGMLQuantizationType[kind]
    before = load_file(original / "model.safetensors")
    after = load_file(folder / "model.safetensors")
    for name, values in before.items():
        exact = values
        if values.ndim > 1:
            exact = gguf.dequantize(gguf.quantize(values, stored), stored)
        close = 2**-8 if kind == "BF16" else 2**-11
        np.testing.assert_allclose(after[name].astype(np.float32), exact, rtol=close, atol=1e-7)


def test_llama_3_scaling_is_found_again(source, tmp_path):
    scaling = {"rope_theta": 5e5, "factor": 32.0, "original_max_position_embeddings": 8192}
    original = source(rope_parameters=LLAMA3 | scaling, max_position_embeddings=131_072)
    inverse = 500_000.0 ** -(np.arange(16) / 16)
    turns = 8192 * inverse / (2 * np.pi)
    smooth = (turns - 1) / 3
    factors = np.where(turns < 1, 32, np.where(turns > 4, 1, 1 / ((1 - smooth) / 32 + smooth)))
    more = {"rope_freqs.weight": factors.astype(np.float32)}
    folder = imported(gguf_of(original, tmp_path / "model.gguf", tensors=more))
    assert open_checkpoint(folder).config.rope_scaling == (
        open_checkpoint(original).config.rope_scaling
    )
    more["rope_freqs.weight"][3] *= 1.5
    with pytest.raises(CheckpointError, match="rope_freqs"):
        imported(gguf_of(original, tmp_path / "other.gguf", tensors=more))


def test_the_tokenizer_and_the_chat_template_are_the_files(source, tmp_path):
    tokenizer = Tokenizer(imported(gguf_of(source(), tmp_path / "model.gguf")))
    spelled = [tokenizer.spellings[token] for token in tokenizer.encode("hello 12<|im_end|>")]
    assert spelled == ["hello", "Ġ", "1", "2", "<|im_end|>"]
    text = "hello  wörld\n\n7 times 日本"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_ids == (2,)
    assert not tokenizer.adds_bos
    assert tokenizer.vocab_size == len(TOKENS)  # unused entries are left out
    turn = [{"role": "user", "content": "hello"}]
    assert tokenizer.chat(turn, generation_prompt=True) == "<|im_start|>hello<|im_end|>"


def test_a_text_begins_with_bos_where_the_file_says_so(source, tmp_path):
    changed = {"tokenizer__ggml__add_bos_token": True, "tokenizer__ggml__eot_token_id": 0}
    tokenizer = Tokenizer(imported(gguf_of(source(), tmp_path / "model.gguf", **changed)))
    assert tokenizer.adds_bos
    assert tokenizer.encode("hello") == [TOKENS.index("hello")]
    assert tokenizer.eos_ids == (2, 0)


def test_sentencepiece_merges_the_piece_of_the_best_score(source, tmp_path):
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "a", "b", "c", "ab", "bc", "▁ab"]
    kinds = [2, 3, 3] + [6] * 256 + [1] * 7
    changed = {
        "tokenizer__ggml__model": "llama",
        "tokenizer__ggml__pre": None,
        "tokenizer__ggml__merges": None,
        "tokenizer__ggml__tokens": pieces,
        "tokenizer__ggml__token_type": kinds,
        "tokenizer__ggml__scores": [0.0] * 259 + [-9.0, -9.0, -9.0, -9.0, -2.0, -1.0, -3.0],
        "tokenizer__ggml__add_bos_token": None,
    }
    original = source()
    tokenizer = Tokenizer(imported(gguf_of(original, tmp_path / "model.gguf", **changed)))
    assert tokenizer.adds_bos
    spelled = [tokenizer.spellings[token] for token in tokenizer.encode("abc ab é")]
    assert spelled == ["▁", "a", "bc", "▁ab", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("abc ab é")) == "abc ab é"
    bare = changed | {"tokenizer__ggml__add_space_prefix": False}
    tokenizer = Tokenizer(imported(gguf_of(original, tmp_path / "bare.gguf", **bare)))
    assert [tokenizer.spellings[token] for token in tokenizer.encode("ab")] == ["ab"]


def test_a_file_is_read_once_and_again_when_it_has_changed(source, tmp_path, capsys):
    original, file = source(), tmp_path / "model.gguf"
    folder = imported(gguf_of(original, file))
    assert "Reading" in capsys.readouterr().out
    assert imported(file) == folder
    assert not capsys.readouterr().out
    file.unlink()
    assert imported(gguf_of(original, file, "F16")) == folder
    assert open_checkpoint(folder).config.dtype == "float16"
    file.unlink()
    assert imported(file) == file  # which is then no checkpoint folder
    with pytest.raises(CheckpointError, match="no GGUF file"):
        open_checkpoint(file)


def test_a_deployment_names_the_file(source, tmp_path):
    file = gguf_of(source(), tmp_path / "model.gguf")
    demo = Path(__file__).parents[2] / "engines" / "deployments" / "demo.yaml"
    text = demo.read_text().replace("../checkpoints/demo-generator", "model.gguf")
    (tmp_path / "mine.yaml").write_text(text)
    deployment = load_deployment(tmp_path / "mine.yaml")
    assert deployment.generator.checkpoint == file
    assert with_made_folders(deployment) == deployment
    with pytest.raises(CheckpointError, match="has not been made a checkpoint folder yet"):
        open_checkpoint(file)
    assert not paths.imported_dir().exists()  # reading the deployment makes nothing of it
    resolved = resolve_models(deployment)
    assert with_made_folders(deployment) == resolved
    assert resolved.generator.checkpoint == imported(file)
    assert resolve_models(resolved) == resolved


REFUSED = {
    "general.architecture is 'gemma'": {"general__architecture": "gemma"},
    "tokenizer.ggml.pre is 'deepseek-llm'": {"tokenizer__ggml__pre": "deepseek-llm"},
    "there is no tokenizer.ggml.pre": {"tokenizer__ggml__pre": None},
    "tokenizer.ggml.model is 't5'": {"tokenizer__ggml__model": "t5"},
    "llama.expert_count is 8": {"llama__expert_count": 8},
    "llama.attention.sliding_window is 256": {"llama__attention__sliding_window": 256},
    "llama.rope.scaling.type is 'yarn'": {"llama__rope__scaling__type": "yarn"},
    "llama.residual_scale": {"llama__residual_scale": 2.0},
    "llama.rope.dimension_count is 16": {"llama__rope__dimension_count": 16},
    "num_hidden_layers": {"llama__block_count": None},
    "no tensor for model.layers.2": {"llama__block_count": 3},
    "for which it has no place": {"llama__block_count": 1},
    "in the shape": {"llama__feed_forward_length": 64},
    "split.count is 2": {"split__count": 2},
    "there is no tokenizer.ggml.tokens": {"tokenizer__ggml__tokens": None},
    "split.count is 'x'": {"split__count": "x"},
    "a number for each of the": {"tokenizer__ggml__token_type": [1, 2, 3]},
    "merges no tokens": {"tokenizer__ggml__merges": ["h e", "x q"]},
    "tokenizer.ggml.eos_token_id is 9999": {"tokenizer__ggml__eos_token_id": 9999},
    "holds 'h' twice": {"tokenizer__ggml__tokens": [*SPECIAL, *("h" for _ in TOKENS), "h"][:265]},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_supported_is_named(source, tmp_path, message):
    changed = REFUSED[message]
    with pytest.raises(CheckpointError) as refused:
        imported(gguf_of(source(), tmp_path / "model.gguf", **changed))
    assert message in refused.value.message
    assert "model.gguf" in refused.value.message
    assert not list((tmp_path / "home").rglob("*.safetensors"))


def test_a_quantisation_that_cannot_be_read_is_named(source, tmp_path, monkeypatch):
    file = gguf_of(source(), tmp_path / "model.gguf", "Q8_0")
    monkeypatch.delitem(gguf.quants._type_traits, gguf.GGMLQuantizationType.Q8_0)
    with pytest.raises(CheckpointError, match="is stored as Q8_0, which `gguf` cannot read"):
        imported(file)


def test_numbers_that_are_none_are_refused(source, tmp_path):
    more = {"model.norm.weight": np.full(128, np.nan, np.float32)}
    with pytest.raises(CheckpointError, match=r"output_norm\.weight.* no numbers"):
        imported(gguf_of(source(), tmp_path / "model.gguf", tensors=more))


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    file = tmp_path / "model.gguf"
    file.write_bytes(head())
    with pytest.raises(CheckpointError, match="the package that reads them is missing") as refused:
        imported(file)
    assert refused.value.hint == f"Install it: {sys.executable} -m pip install 'gguf>=0.17'"


def head(tensors=0, fields=0, rest="", *values):
    """A header that claims so many tensors and fields; `rest` is what follows, as struct packs."""
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + struct.pack("<" + rest, *values)


HOSTILE = {
    "empty": b"",
    "another format": b"PK\3\4" + bytes(40),
    "version 1": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "counts beyond the file": head(2**63, 2**64 - 1),
    "a text beyond the file": head(0, 1, "Q", 2**64 - 1),
    "a list beyond the file": head(0, 1, "QcIIQ", 1, b"a", 9, 0, 2**62),
    "lists of lists": head(0, 1, "QcIIQIQ", 1, b"a", 9, 9, 1, 9, 1),
    "an unknown kind": head(0, 1, "QcII", 1, b"a", 77, 1),
    "a tensor beyond the file": head(1, 0, "QcIQIQ", 1, b"a", 1, 32, 0, 2**40),
    "a tensor of a size beyond numbers": head(1, 0, "QcIQQIQ", 1, b"a", 2, 2**63, 2**63, 0, 0),
    "a tensor of an unknown kind": head(1, 0, "QcIQIQ", 1, b"a", 1, 32, 999, 0),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_claims_too_much_is_refused(tmp_path, name):
    file = tmp_path / "model.gguf"
    file.write_bytes(HOSTILE[name])
    with pytest.raises(CheckpointError, match="not a readable GGUF file"):
        imported(file)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read(source, tmp_path, data):
    """Whatever bytes of the metadata are others: no error but the one for users."""
    good = tmp_path / "good.gguf"
    if not good.exists():
        gguf_of(source(), good)
    content = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 12_000))
        content[at] = data.draw(st.sampled_from([0, 1, 9, 127, 128, 255]))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    file = tmp_path / "damaged.gguf"
    file.write_bytes(content)
    with suppress(CheckpointError):
        json.loads((imported(file) / "config.json").read_text())
