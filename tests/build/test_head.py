"""Verifiers with a head of their own: what is recognised, what is refused, what is computed."""

import json
import runpy
import sys
from types import ModuleType

import numpy as np
import pytest
from tests.build.conftest import SHAPE, write_tokenizer
from tests.build.openvino_build import build, logits
from tests.build.stand_in_build import calls
from tests.serving.facts import unexpected

from tts.base import paths
from tts.base.errors import CheckpointError, ConfigError
from tts.build.builder import preview_build
from tts.build.checkpoint import open_checkpoint, write_causal
from tts.build.inputs import EngineInputs, engine_shape
from tts.build.manifest import read_engine_config
from tts.build.model_config import read_model_config
from tts.build.openvino.memory import engine_memory
from tts.build.openvino.transformer import Transformer, save_model
from tts.build.openvino.verify import verify_engine
from tts.build.spec import Deployment
from tts.build.tensorrt import target
from tts.build.tensorrt.memory_plan import plan_memory
from tts.serving.repository.check import check_repository
from tts.serving.repository.render import parse_config, render_repository

PUBLISHED = ("Qwen2ForProcessRewardModel", "Qwen2ForPrmModel")
TWO_LAYERS = ("Qwen3ForProcessRewardModel", "Qwen2ForRewardModel")
TEMPLATE = {"head": "{question} ", "answer": " w9", "turn": " "}


@pytest.fixture
def published(tmp_path, torch):
    """Save a random checkpoint of a published architecture; its model is `published.model`."""
    from tests.build.headed import HeadedModel

    def save(architecture, **config):
        model = HeadedModel(architecture, SHAPE | {"max_position_embeddings": 512} | config)
        folder = tmp_path / architecture
        model.save(folder)
        write_tokenizer(folder)
        save.model = model
        return folder

    return save


def deployed(deployment, verifier, **fields):
    """A pair whose verifier is another checkpoint, in a dialogue of the tiny tokenizer."""
    data = deployment().model_dump(mode="json", exclude_unset=True)
    data["verifier"] |= {"checkpoint": verifier, "format": "custom", "template": TEMPLATE} | fields
    return Deployment.model_validate(data)


def scores(folder, ids):
    """Scores of an engine at every token: the softmax's first column."""
    found = logits(folder, ids)
    assert found.shape == (*ids.shape, 2)
    exponentials = np.exp(found - found.max(axis=-1, keepdims=True))
    return exponentials[..., 0] / exponentials.sum(axis=-1)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", PUBLISHED + TWO_LAYERS)
def test_an_engine_gives_the_scores_of_the_published_models(
    torch, published, tmp_path, architecture, tied
):
    folder = published(architecture, tie_word_embeddings=tied)
    save_model(Transformer(open_checkpoint(folder), "fp32").model(), tmp_path)
    ids = np.random.default_rng(0).integers(0, 128, (1, 40))
    expected = published.model.scores(torch.from_numpy(ids)).numpy()
    assert np.abs(scores(tmp_path, ids) - expected).max() < 1e-5
    assert np.ptp(expected) > 0.05  # constant scores would agree with anything


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Mistral"])
@pytest.mark.parametrize(
    ("what", "labels"), [("Token", 2), ("Sequence", 1), ("Sequence", 2)], ids=str
)
def test_an_engine_gives_the_scores_of_classification_models(
    torch, make_model, tmp_path, family, what, labels
):
    more = {"sliding_window": None} if family == "Mistral" else {}
    model = make_model(f"{family}For{what}Classification", num_labels=labels, **more)
    folder = tmp_path / "checkpoint"
    model.save_pretrained(folder)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config.head.layers == ("score",)
    save_model(Transformer(checkpoint, "fp32").model(), tmp_path)
    ids = np.random.default_rng(0).integers(0, 128, (1, 40))
    found, expected = scores(tmp_path, ids), scores_of(torch, model, ids)
    read = found if what == "Token" else found[:, -1]
    assert np.abs(read - expected).max() < 1e-5
    assert np.ptp(found) > 0.05


def scores_of(torch, model, ids):
    """What transformers gives: the softmax's class 1, or one number's sigmoid."""
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)).logits
    if logits.shape[-1] == 1:
        return logits.sigmoid()[..., 0].numpy()
    return logits.softmax(dim=-1)[..., 1].numpy()


def test_a_bias_that_a_classifier_of_sequences_has_is_added(torch, make_model, tmp_path):
    model = make_model("LlamaForSequenceClassification", num_labels=1)
    model.score = torch.nn.Linear(model.config.hidden_size, 1)
    torch.nn.init.constant_(model.score.bias, 0.7)
    model.save_pretrained(tmp_path)
    save_model(Transformer(open_checkpoint(tmp_path), "fp32").model(), tmp_path)
    ids = np.random.default_rng(0).integers(0, 128, (1, 40))
    expected = scores_of(torch, model, ids)
    assert scores(tmp_path, ids)[0, -1] == pytest.approx(expected[0], abs=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("architecture", PUBLISHED)
def test_a_head_is_exported_in_every_precision_in_the_planned_size(
    published, tmp_path, deployment, architecture, precision
):
    pair = deployed(deployment, published(architecture), precision=precision)
    checkpoint = EngineInputs(pair, "verifier").checkpoint
    save_model(Transformer(checkpoint, precision).model(), tmp_path)
    result = verify_engine(tmp_path, checkpoint, precision)
    assert result.export_error < 1e-4
    assert result.largest_logit > 0.1
    planned = engine_memory(checkpoint.config, pair.verifier).file
    size = (tmp_path / "openvino_model.bin").stat().st_size
    assert planned <= size < planned + 10_000  # norms, biases and the constants of the graph


@pytest.mark.parametrize(
    ("architecture", "kind"), [(PUBLISHED[0], "classification"), (PUBLISHED[1], "value")]
)
def test_a_build_says_which_head_it_found(published, deployment, architecture, kind):
    said = []
    pair = deployed(deployment, published(architecture), head=kind)
    reports = build(pair, roles=["verifier"], say=said.append, verify=True)
    assert any(f"verifier: judges with a {kind} head (" in line for line in said)
    config = read_engine_config(reports[0].folder)
    assert (config.output_vocab_size, config.label_token_ids) == (2, (0, 1))
    assert reports[0].verification is not None


PROCESS, VALUE = PUBLISHED
OTHER_LABELS = ["w7", "w8"]
SHOWN = TEMPLATE | {"turn": "{label} w8"}


@pytest.mark.parametrize(
    ("architecture", "fields", "message"),
    [
        (PROCESS, {"head": "labels"}, r"'labels', .* classification head \(score.0, ReLU, score.2"),
        (PROCESS, {"head": "value"}, "'value', .* a classification head"),
        (VALUE, {"head": "classification"}, r"'classification', .* a value head \(v_head.summary"),
        (None, {"head": "classification"}, "'classification'.*language head"),
        (VALUE, {"labels": OTHER_LABELS}, r"verifier\.labels are given, .* by a value head"),
        (VALUE, {"template": SHOWN}, r"verifier\.template\.turn begins with \{label\}"),
        *(
            (PROCESS, {"format": name, "template": None}, rf"format is '{name}'.*classification")
            for name in ("rlhflow", "math-shepherd")
        ),
        *(
            (None, {"format": name, "template": None}, rf"format is '{name}'.* with labels")
            for name in ("qwen2.5-math-prm", "skywork-o1-prm")
        ),
    ],
)
def test_what_does_not_go_with_a_head_or_asks_for_one_is_refused(
    published, llama, deployment, architecture, fields, message
):
    folder = published(architecture) if architecture else llama
    with pytest.raises(CheckpointError, match=message):
        build(deployed(deployment, folder, **fields))


def rewritten(folder, **fields):
    """Change fields of config.json; ... removes one."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
    return folder


def test_a_head_that_is_not_in_the_weights_is_refused_by_its_tensor(published, deployment):
    folder = rewritten(published(VALUE), architectures=[PROCESS])
    with pytest.raises(CheckpointError, match=r"no tensor 'score\.0\.weight'"):
        _ = EngineInputs(deployed(deployment, folder), "verifier").checkpoint


def test_a_headed_checkpoint_does_not_generate(published, deployment):
    folder = published("Qwen2ForPrmModel")
    pair = deployment(checkpoint=folder)
    with pytest.raises(CheckpointError, match=r"a value head .*, which cannot generate") as caught:
        engine_shape(read_model_config(folder), pair.generator)
    assert "generator.checkpoint" in str(caught.value.hint)
    with pytest.raises(CheckpointError, match="cannot generate"):
        build(pair)


def test_a_causal_model_with_a_value_head_must_be_told_which_one_judges(published, deployment):
    folder = published(VALUE, tie_word_embeddings=False)
    rewritten(folder, architectures=["Qwen2ForCausalLM"])
    with pytest.raises(CheckpointError, match=r"language head and a value head \(v_head") as caught:
        _ = EngineInputs(deployed(deployment, folder), "verifier").checkpoint
    assert "verifier.head" in str(caught.value.hint)
    value = EngineInputs(deployed(deployment, folder, head="value"), "verifier").checkpoint
    assert value.config.head is not None
    labels = EngineInputs(deployed(deployment, folder, head="labels"), "verifier").checkpoint
    assert labels.config.head is None


@pytest.mark.parametrize(
    ("fields", "supported"),
    [
        ({"num_labels": 3}, r"right\."),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, r"right\."),
        ({"num_labels": 3, "architectures": ["Qwen2ForSequenceClassification"]}, "or 1 value"),
    ],
)
def test_more_than_two_classes_are_refused(published, fields, supported):
    folder = rewritten(published(PROCESS), **({"id2label": ...} | fields))
    with pytest.raises(CheckpointError, match=f"num_labels is 3; supported: 2 .*{supported}"):
        read_model_config(folder)


def for_a_gpu(pair):
    """The same pair for a GPU."""
    data = pair.model_dump(mode="json", exclude_unset=True)
    data |= {"target": "tensorrt", "tensorrt": {"gpu": "h100"}}
    for role in ("generator", "verifier"):
        data[role]["precision"] = "bf16"
    return Deployment.model_validate(data)


@pytest.mark.parametrize("architecture", ["Qwen2ForProcessRewardModel", "Qwen2ForRewardModel"])
def test_a_head_of_two_layers_is_refused_for_a_gpu_with_the_reason(
    published, deployment, architecture
):
    pair = for_a_gpu(deployed(deployment, rewritten(published(architecture), auto_map=...)))
    reason = "no place for the ReLU between two layers"
    for refused in (lambda: build(pair, roles=["verifier"]), lambda: plan_memory(pair)):
        with pytest.raises(ConfigError, match=rf"verifier judges with a .* head .*{reason}"):
            refused()


@pytest.mark.parametrize(
    "architecture",
    ["Qwen2ForPrmModel", "Qwen2ForTokenClassification", "Qwen2ForSequenceClassification"],
)
@pytest.mark.parametrize("tied", [True, False])
def test_a_head_of_one_layer_is_written_as_rows_of_a_language_head(
    torch, published, make_model, tmp_path, architecture, tied
):
    """Its first two logits and the biases give the head's scores, with nothing rounded."""
    from transformers import Qwen2ForCausalLM

    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 128, (1, 40)))
    if architecture == "Qwen2ForPrmModel":
        folder = published(architecture, tie_word_embeddings=tied)
        expected = published.model.scores(ids)
    else:
        model = make_model(architecture, num_labels=2, tie_word_embeddings=tied)
        folder = tmp_path / "classifier"
        model.save_pretrained(folder)
        expected = torch.from_numpy(scores_of(torch, model, ids.numpy()))
    checkpoint = open_checkpoint(folder)
    write_causal(checkpoint, tmp_path / "causal")
    assert open_checkpoint(tmp_path / "causal").config.head is None
    assert "auto_map" not in json.loads((tmp_path / "causal" / "config.json").read_text())
    causal = Qwen2ForCausalLM.from_pretrained(tmp_path / "causal").eval()
    bias = torch.tensor(np.array(checkpoint.head_layers()[-1][1]))
    with torch.no_grad():
        logits = causal(ids).logits
    assert logits.shape[-1] == 128
    assert (logits[..., 2:] == 0).all()
    scores = (logits[..., :2] + bias).softmax(dim=-1)[..., 0]
    read = scores[:, -1] if architecture == "Qwen2ForSequenceClassification" else scores
    assert (read - expected).abs().max() < 1e-6


def test_a_value_head_is_built_for_a_gpu_from_a_causal_model(published, deployment, state, home):
    said = []
    pair = for_a_gpu(deployed(deployment, published(VALUE)))
    lines = preview_build(pair)
    assert "# judges with a value head (v_head.summary)" in lines
    assert any("written again as a causal model: " in line for line in lines)
    (report,) = build(pair, roles=["verifier"], say=said.append, verify=None)
    assert report.status == "built"
    assert "verifier: judges with a value head (v_head.summary)" in said
    work = home / "built" / "test" / ".verifier.work"
    convert = next(call for call in calls(state, "docker") if "convert" in call)
    assert convert[convert.index("--checkpoint") + 1] == str(work / "causal")
    assert not work.exists(), "the copy is not kept"
    config = target.engine_config(EngineInputs(pair, "verifier"), report.folder)
    assert config.label_token_ids == (0, 1)


def test_the_bias_of_a_head_is_added_where_the_score_is_computed(published, deployment):
    value = published("Qwen2ForPrmModel")
    pair = for_a_gpu(deployed(deployment, value))
    folder = render_repository(pair)
    given = parse_config(folder / "prm_score" / "config.pbtxt").parameters
    assert given["label_ids"].string_value == "0,1"
    bias = published.model.head.bias.item()
    assert [float(b) for b in given["label_biases"].string_value.split(",")] == [bias, 0.0]
    assert check_repository(folder, pair) == []
    assert unexpected(folder) == []


@pytest.mark.parametrize("bias", [None, "0.5,-0.25"])
def test_the_score_model_takes_the_softmax_of_logits_and_biases(monkeypatch, bias):
    class Tensor:
        def __init__(self, name, array):
            self.name, self.array = name, array

        def as_numpy(self):
            return self.array

    backend = ModuleType("triton_python_backend_utils")
    backend.Tensor = Tensor
    backend.InferenceResponse = lambda output_tensors: output_tensors
    backend.get_input_tensor_by_name = lambda request, name: request
    monkeypatch.setitem(sys.modules, backend.__name__, backend)
    file = paths.templates_dir() / "common" / "prm_score" / "1" / "model.py"
    model = runpy.run_path(str(file))["TritonPythonModel"]()
    given = {"label_ids": "3,1", "label_weights": "1,0"}
    parameters = {name: {"string_value": text} for name, text in given.items()}
    if bias:
        parameters["label_biases"] = {"string_value": bias}
    model.initialize({"model_config": json.dumps({"parameters": parameters})})
    logits = np.array([[[[0.0, 1.0, 9.0, 2.0]]]], np.float32)
    ((score, labels),) = model.execute([Tensor("generation_logits", logits)])
    expected = [2.5, 0.75] if bias else [2.0, 1.0]
    assert labels.array.tolist() == [expected]
    assert score.array[0, 0] == pytest.approx(1 / (1 + np.exp(expected[1] - expected[0])), abs=1e-6)
