"""Exported engines compute what transformers computes."""

import math

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.build.conftest import LLAMA3, VOCABULARY
from tests.build.openvino_build import logits

from tts.base.errors import BuildError, CheckpointError, ConfigError
from tts.build.checkpoint import expected_tensors, open_checkpoint
from tts.build.openvino import verify
from tts.build.openvino.runtime import plugin_properties
from tts.build.openvino.transformer import ScoreColumns, Transformer, quantise_rows, save_model
from tts.build.openvino.verify import verify_engine

MODELS = {
    "llama": ("LlamaForCausalLM", {}),
    "llama biases": ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "llama one head each": ("LlamaForCausalLM", {"num_key_value_heads": 4}),
    "llama3 rope": ("LlamaForCausalLM", {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}}),
    "llama bf16": ("LlamaForCausalLM", {"dtype": "bfloat16"}),
    "llama fp16": ("LlamaForCausalLM", {"dtype": "float16"}),
    "llama sharded": ("LlamaForCausalLM", {"shard": "100KB"}),
    "llama short": ("LlamaForCausalLM", {"max_position_embeddings": 8}),
    "qwen2 untied": ("Qwen2ForCausalLM", {"tie_word_embeddings": False}),
    "qwen2 tied": ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 32}),
    "mistral": ("MistralForCausalLM", {"sliding_window": None}),
}


@pytest.fixture
def check(tmp_path):
    """Export a checkpoint and compare it with transformers."""

    def export(folder, precision, labels=None):
        checkpoint = open_checkpoint(folder)
        engine = tmp_path / "engine"
        engine.mkdir()
        save_model(Transformer(checkpoint, precision, labels).model(), engine)
        return verify_engine(engine, checkpoint, precision, labels)

    return export


@pytest.mark.parametrize("model", MODELS)
def test_fp32_agrees_with_transformers(make_checkpoint, check, model):
    architecture, options = MODELS[model]
    result = check(make_checkpoint(architecture, **options), "fp32")
    assert result.export_error < 1e-4
    assert result.largest_logit > 1  # an all-zero model would agree with anything


@pytest.mark.parametrize("precision", ["bf16", "int8"])
@pytest.mark.parametrize(
    "model", ["llama", *(pytest.param(m, marks=pytest.mark.slow) for m in ("qwen2 tied", "qwen3"))]
)
def test_compressed_weights_are_computed_exactly(make_checkpoint, check, model, precision):
    architecture, options = MODELS[model]
    result = check(make_checkpoint(architecture, **options), precision)
    assert result.export_error < 1e-4
    assert 1e-4 < result.served_error < verify.SERVED_TOLERANCE * result.largest_logit


@pytest.mark.parametrize(
    "precision", ["fp32", "bf16", pytest.param("int8", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("tied", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_verifier_head_is_cut_to_its_labels(make_checkpoint, check, tmp_path, precision, tied):
    import openvino

    folder = make_checkpoint("Qwen2ForCausalLM", tie_word_embeddings=tied)
    assert check(folder, precision, ScoreColumns((77, 3), (1.0, 0.0))).export_error < 1e-4
    model = openvino.Core().read_model(tmp_path / "engine" / "openvino_model.xml")
    assert model.output("logits").partial_shape[2].get_length() == 2


GRADES = {9: 1.0, 4: 0.7, 77: 0.25, 100: 0.0}


def softmax(logits):
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


@pytest.mark.parametrize("beside", [False, True])
def test_graded_scores_against_a_comparison_of_the_tests_own(
    torch, llama, make_model, check, tmp_path, beside
):
    check(llama, "fp32", ScoreColumns(tuple(GRADES), tuple(GRADES.values()), beside))
    ids = np.arange(20)[None] * 5
    with torch.no_grad():
        expected = make_model()(torch.from_numpy(ids)).logits.numpy()
    graded = softmax(expected[..., list(GRADES)]) @ list(GRADES.values())
    engine = tmp_path / "engine"
    found = logits(engine, ids + VOCABULARY * beside, beside=beside)
    if beside:
        written, closed = np.split(logits(engine, ids, beside=True), [VOCABULARY], -1)
        assert np.abs(written - expected).max() < 1e-5
        assert max(found[..., :VOCABULARY].max(), closed.max()) < -1e29
        found = found[..., VOCABULARY:]
    assert np.abs(softmax(found)[..., 0] - graded).max() < 1e-6


def test_two_labels_beside_a_vocabulary_are_its_own_logits(llama, check, tmp_path):
    check(llama, "fp32", ScoreColumns((9, 4), (1.0, 0.0), beside_vocabulary=True))
    ids = np.arange(20)[None] * 5
    rows = logits(tmp_path / "engine", ids, beside=True)[..., [9, 4]]
    assert np.array_equal(
        logits(tmp_path / "engine", ids + VOCABULARY, beside=True)[..., VOCABULARY:], rows
    )


def test_bf16_weights_are_not_copied_to_fp32_when_the_model_is_compiled(llama, tmp_path):
    import openvino

    checkpoint = open_checkpoint(llama)
    save_model(Transformer(checkpoint, "bf16").model(), tmp_path)
    # compiled for fp32, which any CPU can; what is folded does not depend on the arithmetic
    compiled = openvino.Core().compile_model(
        tmp_path / "openvino_model.xml", "CPU", plugin_properties("fp32")
    )
    kept = {"bf16": 0, "f32": 0}
    for node in compiled.get_runtime_model().get_ops():
        info = node.get_rt_info()
        if "layerType" in info and info["layerType"].astype(str) == "Const":
            precision = info["outputPrecisions"].astype(str)
            size = math.prod(node.output(0).shape)
            kept[precision] = kept.get(precision, 0) + size
    matrices = sum(
        math.prod(shape)
        for shape in expected_tensors(checkpoint.config).values()
        if len(shape) == 2
    )
    assert kept["bf16"] >= matrices
    assert kept["f32"] < matrices / 20


def test_an_engine_that_does_not_load(llama, tmp_path):
    (tmp_path / "openvino_model.xml").write_text("<net>")
    with pytest.raises(BuildError, match="OpenVINO cannot load the engine in fp32"):
        verify_engine(tmp_path, open_checkpoint(llama), "fp32")


def test_a_checkpoint_that_transformers_cannot_load(llama, tmp_path):
    checkpoint = open_checkpoint(llama)
    (llama / "config.json").write_text("{")
    with pytest.raises(BuildError, match=r"transformers could not load .*llama") as caught:
        verify_engine(tmp_path, checkpoint, "fp32")
    assert "--no-verify" in str(caught.value.hint)


def test_unknown_precision_has_no_properties():
    with pytest.raises(ConfigError, match="'fp8' is not one of target openvino: fp32, bf16, int8"):
        plugin_properties("fp8")


def test_tied_by_config_but_not_by_weights(edit_config):
    checkpoint = open_checkpoint(edit_config(tie_word_embeddings=True))
    with pytest.raises(CheckpointError, match=r"tie_word_embeddings.*lm_head\.weight differs"):
        Transformer(checkpoint, "fp32").model()


def test_quantised_rows():
    rows = np.array([[0.0, 0.0], [1.0, -2.0], [127.0, 64.0]], np.float32)
    values, scales = quantise_rows(rows)
    assert values.tolist() == [[0, 0], [64, -127], [127, 64]]
    assert np.abs(values * scales - rows).max() <= scales.max() / 2


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_weight_that_is_no_number_is_named_where_it_is_read(llama, precision):
    """In the middle of a tensor, which is looked at only when the exporter reads it."""
    file, name = llama / "model.safetensors", "lm_head.weight"
    checkpoint, tensors = open_checkpoint(llama), load_file(file)
    tensors[name].flat[tensors[name].size // 2] = np.nan
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=rf"{file}: tensor '{name}' holds values that are no"):
        Transformer(checkpoint, precision).model()
