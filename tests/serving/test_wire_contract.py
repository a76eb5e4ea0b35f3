"""The served models speak the wire contract: TensorRT-LLM's tensors, names and types."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2

from tts.base import paths
from tts.build.openvino import threads
from tts.build.spec import Deployment, load_deployment
from tts.engines import opening, wire
from tts.engines.engine_messages import OPENING, decode_opening
from tts.serving.contract import contract
from tts.serving.repository import model_configs
from tts.serving.repository import render as repository
from tts.serving.repository.render import parse_config, render_repository

SHAPE = SimpleNamespace(
    vocab_size=100, output_vocab_size=100, eos_token_ids=(5,), label_token_ids=(7, 9)
)


@pytest.fixture
def configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Deployment], engines: Any
) -> dict[str, Any]:
    """The real repository's configurations, by model; the engines are not looked at."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    monkeypatch.setattr(repository, "require_current", lambda deployment: engines)
    monkeypatch.setattr(opening, "read_engine_config", lambda folder: SHAPE)
    folder = render_repository(make(), iteration_log=True)
    return {file.parent.name: parse_config(file) for file in folder.glob("*/config.pbtxt")}


Declared = dict[str, tuple[str, list[int]]]


def tensors(side: Any) -> Declared:
    return {t.name: (model_config_pb2.DataType.Name(t.data_type), list(t.dims)) for t in side}


def of_wire(names: dict[str, str], dims: list[int]) -> Declared:
    kinds = {"BYTES": "TYPE_STRING"}
    return {name: (kinds.get(kind, f"TYPE_{kind}"), dims) for name, kind in names.items()}


def of_contract(facts: Any, names: dict[str, str]) -> Declared:
    """The tensors of these names; only the verifier's engine is built to give logits, as FP32."""
    given = {t.name: (t.data_type.replace("logits", "TYPE_FP32"), t.dims) for t in facts}
    return {name: given[name] for name in names}


def test_the_generator_has_the_tensors_of_the_contract(configs: dict[str, Any]):
    config = configs[wire.GENERATOR]
    asked, answered = tensors(config.input), tensors(config.output)
    kinds = of_wire(wire.INPUTS, [1])
    assert {name: asked[name][0] for name in kinds} == {name: kinds[name][0] for name in kinds}
    own = of_wire(wire.HOST_INPUTS, [1])
    assert asked == of_contract(contract().inputs, wire.INPUTS) | own
    own = of_wire(wire.ROW_OUTPUTS, [1])
    assert answered == of_contract(contract().outputs, wire.OUTPUTS) | own
    required = {"input_lengths", "request_output_len"}
    assert {t.name for t in contract().inputs if not t.optional} == required
    assert {t.name for t in config.input if not t.optional} == required
    assert {name for name, (_, dims) in asked.items() if dims != [1]} == {
        *("input_ids", "stop_words_list", "bad_words_list", "embedding_bias")
    }


def test_the_verifier_is_asked_as_the_ensemble_of_other_targets_is(
    configs: dict[str, Any], make: Callable[..., Deployment]
):
    assert configs.keys() == {wire.GENERATOR, wire.PRM}
    assert [each.model_transaction_policy.decoupled for each in configs.values()] == [
        name == wire.GENERATOR for name in configs
    ]
    ensemble, ours = model_configs._ensemble(make(), "verifier", 2), configs[wire.PRM]
    assert tensors(ours.input) == tensors(ensemble.input)
    assert not any(tensor.optional for tensor in ours.input)
    rows = of_wire(wire.ROW_OUTPUTS, [1])
    assert tensors(ours.output) == tensors(ensemble.output) | rows
    assert tensors(ensemble.output) == {
        "score": ("TYPE_FP32", [1]),
        "label_logits": ("TYPE_FP32", [2]),
    }


@pytest.mark.parametrize(("model", "role"), [("generator", "generator"), ("prm", "verifier")])
def test_an_engine_gets_the_policies_of_the_deployment(
    configs: dict[str, Any], make: Callable[..., Deployment], model: str, role: Any
):
    spec = make().engines()[role]
    assert configs[model].max_batch_size == spec.max_batch_size
    given = decode_opening(configs[model].parameters[OPENING].string_value)
    assert given.engine_dir == paths.engine_dir("echo", role)
    assert given.limits.blocks * given.limits.block_size == spec.kv_cache.tokens
    assert given.limits.kv_reuse
    assert given.statistics_s == model_configs.STATISTICS_S
    assert given.limits.decoupled == (model == wire.GENERATOR)
    assert given.iteration_log == model_configs.iteration_logs(make())[role]


@pytest.mark.parametrize("stated", [None, 5])
def test_an_engine_has_the_threads_that_its_deployment_states_or_that_are_left(monkeypatch, stated):
    monkeypatch.setattr(threads, "usable_cores", lambda: 16)
    monkeypatch.setattr(threads, "LEAST_WEIGHTS", 1)
    demo = load_deployment("demo")
    verifier = demo.verifier.model_copy(update={"threads": stated})
    demo = demo.model_copy(update={"verifier": verifier})
    monkeypatch.setattr(opening, "read_engine_config", lambda folder: SHAPE)
    configs = model_configs.model_configs(demo)
    rendered = [
        decode_opening(configs[name].parameters[OPENING].string_value).threads
        for name in ("generator", "prm")
    ]
    assert rendered == list(threads.threads_of(demo).values())
    assert sum(rendered) == 16
    assert stated in (None, rendered[1])
