"""The served models speak the wire contract: TensorRT-LLM's tensors, names and types."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2

from tts.build import paths
from tts.build.spec import Deployment
from tts.engines import opening, wire
from tts.engines.engine_messages import OPENING, decode_opening
from tts.serving.contract.facts import contract
from tts.serving.repository import render as repository
from tts.serving.repository.model_configs import iteration_logs
from tts.serving.repository.render import parse_config, render_repository

PLACEHOLDERS = {"logits": "TYPE_FP32"}


@pytest.fixture
def configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Deployment], engines: Any
) -> dict[str, Any]:
    """The real repository's configurations, by model; the engines are not looked at."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    monkeypatch.setattr(repository, "require_current", lambda deployment: engines)
    shape = SimpleNamespace(vocab_size=100, eos_token_ids=(5,), label_token_ids=(7, 9))
    monkeypatch.setattr(opening, "read_engine_config", lambda folder: shape)
    folder = render_repository(make(), iteration_log=True)
    return {file.parent.name: parse_config(file) for file in folder.glob("*/config.pbtxt")}


def tensors(side: Any) -> dict[str, tuple[str, list[int]]]:
    return {t.name: (model_config_pb2.DataType.Name(t.data_type), list(t.dims)) for t in side}


def test_the_models_of_the_repository(configs: dict[str, Any]):
    assert set(configs) == {"generator", "prm"}
    assert all(config.name == name for name, config in configs.items())
    assert configs["generator"].model_transaction_policy.decoupled
    assert not configs["prm"].model_transaction_policy.decoupled
    rows = {"batch_index": ("TYPE_INT32", [1]), "error": ("TYPE_STRING", [1])}
    assert tensors(configs["prm"].output) == {
        "score": ("TYPE_FP32", [1]),
        "label_logits": ("TYPE_FP32", [2]),
        **rows,
    }


def test_the_generator_has_the_tensors_of_the_contract(configs: dict[str, Any]):
    model = "generator"
    for side, facts in (("input", contract().inputs), ("output", contract().outputs)):
        allowed = {t.name: (PLACEHOLDERS.get(t.data_type, t.data_type), t.dims) for t in facts}
        served = tensors(getattr(configs[model], side))
        if side == "output":
            assert served.pop(wire.ERROR) == ("TYPE_STRING", [1])  # ours, for requests by rows
        else:
            assert {name: served.pop(name) for name in wire.HOST_INPUTS} == {
                "min_p": ("TYPE_FP32", [1])
            }
        assert served.items() <= allowed.items()
    required = {t.name for t in contract().inputs if not t.optional}
    assert {t.name for t in configs[model].input if not t.optional} == required


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
    assert given.iteration_log == iteration_logs(make())[role]
