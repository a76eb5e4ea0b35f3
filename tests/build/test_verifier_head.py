"""Verifiers with a head of their own: what is recognised, what is refused, what is computed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.build.conftest import SHAPE, write_tokenizer
from tests.build.headed import HeadedModel, Published
from tests.build.openvino_build import Deploy, build

from tts.build.checkpoint import open_checkpoint
from tts.build.engine_shape import engine_shape, open_engine_checkpoint
from tts.build.errors import CheckpointError, ConfigError
from tts.build.manifest import read_engine_config
from tts.build.model_config import read_model_config
from tts.build.openvino.export import export_model, save_model
from tts.build.openvino.memory import engine_memory
from tts.build.openvino.runtime import plugin_properties
from tts.build.openvino.verify import verify_engine
from tts.build.spec import Deployment
from tts.build.tensorrt.memory_plan import plan_memory

PUBLISHED: tuple[Published, ...] = ("Qwen2ForProcessRewardModel", "Qwen2ForPrmModel")
TEMPLATE = {"head": "{question} ", "answer": " w9", "turn": " "}
Save = Callable[..., Path]


@pytest.fixture
def published(tmp_path: Path) -> Save:
    """Save a random checkpoint of a published architecture; its model is `published.model`."""

    def save(architecture: Published, **config: Any) -> Path:
        model = HeadedModel(architecture, SHAPE | {"max_position_embeddings": 512} | config)
        folder = tmp_path / architecture
        model.save(folder)
        write_tokenizer(folder)
        save.model = model  # type: ignore[attr-defined]
        return folder

    return save


def deployed(deployment: Deploy, verifier: Path, **fields: Any) -> Deployment:
    """A pair whose verifier is another checkpoint, in a dialogue of the tiny tokenizer."""
    data = deployment().model_dump(mode="json", exclude_unset=True)
    data["verifier"] |= {"checkpoint": verifier, "format": "custom", "template": TEMPLATE} | fields
    return Deployment.model_validate(data)


def scores(folder: Path, ids: Any) -> Any:
    """Scores of an engine at every token: the softmax's first column."""
    import openvino

    model = openvino.Core().compile_model(
        folder / "openvino_model.xml", "CPU", plugin_properties("fp32")
    )
    inputs = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.arange(ids.shape[1])[None],
        "beam_idx": np.zeros(1, np.int32),
    }
    logits = model.create_infer_request().infer(inputs)["logits"]
    assert logits.shape == (*ids.shape, 2)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials[..., 0] / exponentials.sum(axis=-1)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", PUBLISHED)
def test_an_engine_gives_the_scores_of_the_published_models(
    published: Any, tmp_path: Path, architecture: Published, tied: bool
) -> None:
    import torch

    folder = published(architecture, tie_word_embeddings=tied)
    save_model(export_model(open_checkpoint(folder), "fp32"), tmp_path)
    ids = np.random.default_rng(0).integers(0, 128, (1, 40))
    expected = published.model.scores(torch.from_numpy(ids)).numpy()
    assert np.abs(scores(tmp_path, ids) - expected).max() < 1e-5
    assert np.ptp(expected) > 0.05  # constant scores would agree with anything


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Mistral"])
def test_an_engine_gives_the_scores_of_token_classification_models(
    make_model: Any, tmp_path: Path, family: str
) -> None:
    import torch

    more = {"sliding_window": None} if family == "Mistral" else {}
    model = make_model(f"{family}ForTokenClassification", num_labels=2, **more)
    folder = tmp_path / "checkpoint"
    model.save_pretrained(folder)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config.head is not None
    assert checkpoint.config.head.layers == ("score",)
    save_model(export_model(checkpoint, "fp32"), tmp_path)
    ids = np.random.default_rng(0).integers(0, 128, (1, 40))
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)).logits.softmax(dim=-1)[..., 1].numpy()
    assert np.abs(scores(tmp_path, ids) - expected).max() < 1e-5
    assert np.ptp(expected) > 0.05


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("architecture", PUBLISHED)
def test_a_head_is_exported_in_every_precision(
    published: Any, tmp_path: Path, architecture: Published, precision: Any
) -> None:
    checkpoint = open_checkpoint(published(architecture))
    save_model(export_model(checkpoint, precision), tmp_path)
    result = verify_engine(tmp_path, checkpoint, precision)
    assert result.export_error < 1e-4
    assert result.largest_logit > 0.1


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("architecture", PUBLISHED)
def test_the_weight_file_of_a_headed_verifier_has_the_planned_size(
    published: Any, tmp_path: Path, deployment: Deploy, architecture: Published, precision: Any
) -> None:
    spec = deployed(deployment, published(architecture), precision=precision).verifier
    checkpoint = open_engine_checkpoint(spec)
    save_model(export_model(checkpoint, precision), tmp_path)
    planned = engine_memory(checkpoint.config, spec, "verifier").file
    size = (tmp_path / "openvino_model.bin").stat().st_size
    assert planned <= size < planned + 10_000  # norms, biases and the constants of the graph


@pytest.mark.parametrize("architecture", PUBLISHED)
def test_a_build_says_which_head_it_found(
    published: Any, deployment: Deploy, architecture: Published
) -> None:
    said: list[str] = []
    pair = deployed(deployment, published(architecture))
    reports = build(pair, roles=["verifier"], say=said.append, verify=True)
    kind = "classification" if "Process" in architecture else "value"
    assert any(f"verifier: judges with a {kind} head (" in line for line in said)
    config = read_engine_config(reports[0].folder)
    assert (config.output_vocab_size, config.label_token_ids) == (2, (0, 1))
    assert reports[0].verification is not None


def test_a_build_says_that_labels_are_read(deployment: Deploy) -> None:
    said: list[str] = []
    build(deployment(), say=said.append)
    assert "verifier: judges with a language head, read at the labels" in said


def test_the_stated_head_may_be_the_one_that_is_there(published: Any, deployment: Deploy) -> None:
    for architecture, kind in zip(PUBLISHED, ("classification", "value"), strict=True):
        spec = deployed(deployment, published(architecture), head=kind).verifier
        assert open_engine_checkpoint(spec).config.head is not None


@pytest.mark.parametrize(
    ("architecture", "stated", "found"),
    [
        ("Qwen2ForProcessRewardModel", "labels", "a classification head (score.0, ReLU, score.2)"),
        ("Qwen2ForProcessRewardModel", "value", "a classification head"),
        ("Qwen2ForPrmModel", "classification", "a value head (v_head.summary)"),
    ],
)
def test_a_head_that_the_checkpoint_does_not_have_is_refused(
    published: Any, deployment: Deploy, architecture: Published, stated: str, found: str
) -> None:
    spec = deployed(deployment, published(architecture), head=stated).verifier
    with pytest.raises(CheckpointError) as caught:
        open_engine_checkpoint(spec)
    assert f"verifier.head is {stated!r}" in caught.value.message
    assert found in caught.value.message


def test_a_causal_model_has_no_classification_head(llama: Path, deployment: Deploy) -> None:
    spec = deployed(deployment, llama, head="classification").verifier
    with pytest.raises(CheckpointError, match=r"'classification'.*language head"):
        open_engine_checkpoint(spec)


def test_labels_for_a_headed_verifier_are_refused(published: Any, deployment: Deploy) -> None:
    folder = published("Qwen2ForPrmModel")
    pair = deployed(deployment, folder, labels={"positive": "+", "negative": "-"})
    with pytest.raises(CheckpointError, match=r"verifier\.labels are given, .* by a value head"):
        build(pair)


def test_a_headed_checkpoint_does_not_generate(published: Any, deployment: Deploy) -> None:
    folder = published("Qwen2ForPrmModel")
    pair = deployment(checkpoint=folder)
    with pytest.raises(CheckpointError, match=r"a value head .*, which cannot generate") as caught:
        engine_shape(read_model_config(folder), pair.generator)
    assert "generator.checkpoint" in str(caught.value.hint)
    with pytest.raises(CheckpointError, match="cannot generate"):
        build(pair)


def test_a_causal_model_with_a_value_head_must_be_told_which_one_judges(
    published: Any, deployment: Deploy
) -> None:
    folder = published("Qwen2ForPrmModel", tie_word_embeddings=False)
    file = folder / "config.json"
    config = json.loads(file.read_text()) | {"architectures": ["Qwen2ForCausalLM"]}
    file.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"language head and a value head \(v_head") as caught:
        open_engine_checkpoint(deployed(deployment, folder).verifier)
    assert "verifier.head" in str(caught.value.hint)
    value = open_engine_checkpoint(deployed(deployment, folder, head="value").verifier)
    assert value.config.head is not None
    labels = open_engine_checkpoint(deployed(deployment, folder, head="labels").verifier)
    assert labels.config.head is None


def test_a_head_that_is_not_in_the_weights_is_refused_by_its_tensor(
    published: Any, deployment: Deploy
) -> None:
    folder = published("Qwen2ForPrmModel")
    file = folder / "config.json"
    config = json.loads(file.read_text()) | {"architectures": ["Qwen2ForProcessRewardModel"]}
    file.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"no tensor 'score\.0\.weight'"):
        open_engine_checkpoint(deployed(deployment, folder).verifier)


@pytest.mark.parametrize(
    "fields", [{"num_labels": 3}, {"id2label": {"0": "a", "1": "b", "2": "c"}}]
)
def test_more_than_two_classes_are_refused(published: Any, fields: dict[str, Any]) -> None:
    folder = published("Qwen2ForProcessRewardModel")
    file = folder / "config.json"
    config = {k: v for k, v in json.loads(file.read_text()).items() if k != "id2label"}
    file.write_text(json.dumps(config | fields))
    with pytest.raises(CheckpointError, match="num_labels is 3; supported: 2 classes"):
        read_model_config(folder)


@pytest.mark.parametrize("name", ["rlhflow", "math-shepherd"])
def test_a_head_is_not_read_in_a_dialogue_of_labels(
    published: Any, deployment: Deploy, name: str
) -> None:
    folder = published("Qwen2ForProcessRewardModel")
    pair = deployed(deployment, folder, format=name, template=None)
    with pytest.raises(CheckpointError, match=rf"verifier\.format is '{name}'.*classification"):
        build(pair)


@pytest.mark.parametrize("name", ["qwen2.5-math-prm", "skywork-o1-prm"])
def test_labels_are_not_read_in_a_dialogue_of_heads(
    llama: Path, deployment: Deploy, name: str
) -> None:
    pair = deployed(deployment, llama, format=name, template=None)
    with pytest.raises(CheckpointError, match=rf"verifier\.format is '{name}'.* with labels"):
        build(pair)


def test_a_dialogue_for_a_head_shows_no_labels(published: Any, deployment: Deploy) -> None:
    folder = published("Qwen2ForPrmModel")
    pair = deployed(deployment, folder, template=TEMPLATE | {"turn": "{label} w8"})
    with pytest.raises(CheckpointError, match=r"verifier\.template\.turn begins with \{label\}"):
        build(pair)


@pytest.mark.parametrize("target", ["tensorrt", "llmapi"])
@pytest.mark.parametrize("architecture", ["Qwen2ForPrmModel", "Qwen2ForTokenClassification"])
def test_a_head_is_refused_for_a_gpu_with_the_reason(
    published: Any, deployment: Deploy, target: str, architecture: str
) -> None:
    folder = published("Qwen2ForPrmModel")
    file = folder / "config.json"
    config = json.loads(file.read_text()) | {"architectures": [architecture]}
    del config["auto_map"]
    file.write_text(json.dumps(config))
    data = deployed(deployment, folder).model_dump(mode="json", exclude_unset=True)
    data |= {"target": target, "tensorrt": {"gpu": "h100"}}
    for role in ("generator", "verifier"):
        data[role]["precision"] = "bf16"
    pair = Deployment.model_validate(data)
    for refused in (lambda: build(pair, roles=["verifier"]), lambda: plan_memory(pair)):
        with pytest.raises(ConfigError, match=r"verifier judges with a .* head .* one matrix"):
            refused()
