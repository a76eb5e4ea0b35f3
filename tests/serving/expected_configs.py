"""The configurations that a deployment for NVIDIA GPUs must be served with.

Built from the contract's data and the deployment alone, not from the templates: a second opinion on
what they render.
"""

from __future__ import annotations

import json
from difflib import ndiff
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2 as triton

from tts.build import paths
from tts.build.llmapi.target import llm_arguments
from tts.build.spec import Deployment, EngineSpec
from tts.build.tensorrt.model_shape import shape_of
from tts.engines import wire
from tts.serving.contract.check import LLM_ARGS
from tts.serving.contract.facts import Tensor, contract
from tts.serving.repository.digest import DIGEST, deployment_digest
from tts.serving.repository.guided import grammar_tokenizer_file
from tts.serving.repository.labels import label_biases, label_columns, label_token_ids
from tts.serving.repository.render import parse_config

LOGITS = "TYPE_FP32"
"""The verifier's engine is built with float32 logits; another type fails at the first answer."""
KV_FRACTION = "0.99"
CANCELLATION_CHECK_MS = 5
RECEIVE_POLL_MS = 1
_ENSEMBLE_INPUTS = ("input_ids", "input_lengths", "request_output_len", "return_generation_logits")
_PASSED_ON = ("output_ids", "sequence_length", "generation_logits")


def unexpected(folder: Path, deployment: Deployment) -> list[str]:
    """What differs in the configurations of a rendered repository, a line each."""
    expected = expected_configs(deployment)
    found = {file.parent.name: _plain(parse_config(file)) for file in folder.glob("*/config.pbtxt")}
    assert set(found) == set(expected)
    return [
        f"{name}: {line}"
        for name, config in expected.items()
        for line in ndiff(_plain(config), found[name])
        if line[0] in "+-"
    ]


def _plain(config: triton.ModelConfig) -> list[str]:
    """A configuration as lines in one order, its arguments of `LLM(...)` with sorted keys."""
    data = json_format.MessageToDict(config, preserving_proto_field_name=True)
    for tensors in (data.get("input", []), data.get("output", [])):
        tensors.sort(key=lambda tensor: str(tensor["name"]))
    for key, value in data.get("parameters", {}).items():
        text, fact = value.get("string_value", ""), contract().parameter(key)
        if key == LLM_ARGS:
            text = json.dumps(json.loads(text), sort_keys=True)
        value["string_value"] = contract().canonical(fact, text) if fact else text
    return json.dumps(data, indent=1, sort_keys=True).splitlines()


def expected_configs(deployment: Deployment) -> dict[str, triton.ModelConfig]:
    """The ModelConfig of every model, by name."""
    labels = label_columns(deployment)
    engine = _llm_engine if deployment.target == "llmapi" else _engine
    configs = [
        engine(deployment, wire.GENERATOR, deployment.generator),
        engine(deployment, wire.PRM_ENGINE, deployment.verifier),
        _score(deployment.verifier, labels, label_biases(deployment)),
        _ensemble(deployment.verifier, labels),
    ]
    digest = deployment_digest(deployment)
    for config in configs:
        config.parameters[DIGEST].string_value = digest
    return {config.name: config for config in configs}


def _engine(deployment: Deployment, name: str, spec: EngineSpec) -> Any:
    config = _model(name, "tensorrtllm", spec)
    for tensor in contract().inputs:
        _add(config.input, tensor)
    for tensor in contract().outputs:
        _add(config.output, tensor)
    role = "generator" if name == wire.GENERATOR else "verifier"
    grammars = grammar_tokenizer_file(deployment) if name == wire.GENERATOR else None
    values = {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": paths.engine_dir(deployment.name, role),
        "gpu_device_ids": _gpu_device_ids(spec),
        "max_tokens_in_paged_kv_cache": spec.kv_cache.tokens,
        "kv_cache_free_gpu_mem_fraction": KV_FRACTION,
        "enable_kv_cache_reuse": spec.kv_cache.reuse,
        "kv_cache_host_memory_bytes": int(spec.placement.kv_host_gib * 1024**3),
        "kv_cache_onboard_blocks": True,
        "batch_scheduler_policy": spec.scheduling_policy,
        "enable_chunked_context": spec.chunked_context,
        "max_beam_width": 1,
        "decoding_mode": "top_k_top_p",
        "cancellation_check_period_ms": CANCELLATION_CHECK_MS,
        "recv_poll_period_ms": RECEIVE_POLL_MS,
        "stats_check_period_ms": 100,
        "exclude_input_in_output": True,
        "normalize_log_probs": True,
        "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
        "guided_decoding_backend": "xgrammar" if grammars else "",
        "xgrammar_tokenizer_info_path": grammars or "",
    }
    required = {item.key: "" for item in contract().parameters if item.required}
    _set_parameters(config, required | values)
    return config


def _llm_engine(deployment: Deployment, name: str, spec: EngineSpec) -> Any:
    """A Python model on `LLM(...)`: of the contract's tensors, those that it reads and answers."""
    config = _model(name, "python", spec)
    for tensor in contract().inputs:
        if tensor.name in wire.INPUTS:
            _add(config.input, tensor)
    for tensor in contract().outputs:
        if tensor.name in wire.OUTPUTS:
            _add(config.output, tensor)
    labels = label_token_ids(deployment) if name == wire.PRM_ENGINE else []
    values = {
        LLM_ARGS: json.dumps(llm_arguments(spec)),
        "gpu_device_ids": _gpu_device_ids(spec),
        "vocab_size": shape_of(spec.checkpoint).vocab_size,
        "label_token_ids": ",".join(map(str, labels)),
        "cancellation_check_period_ms": CANCELLATION_CHECK_MS,
        "stats_check_period_ms": 500,
    }
    _set_parameters(config, values)
    return config


def _model(name: str, backend: str, spec: EngineSpec) -> Any:
    config = triton.ModelConfig(name=name, backend=backend, max_batch_size=spec.max_batch_size)
    config.model_transaction_policy.decoupled = name == wire.GENERATOR
    config.dynamic_batching.preferred_batch_size.append(spec.max_batch_size)
    config.dynamic_batching.default_queue_policy.max_queue_size = 0
    config.instance_group.add(count=len(spec.placement.replicas), kind="KIND_CPU")
    return config


def _gpu_device_ids(spec: EngineSpec) -> str:
    return ";".join(",".join(map(str, devices)) for devices in spec.placement.replicas)


def _score(spec: EngineSpec, labels: list[int], biases: list[float]) -> Any:
    config = triton.ModelConfig(
        name=wire.PRM_SCORE, backend="python", max_batch_size=spec.max_batch_size
    )
    config.dynamic_batching.max_queue_delay_microseconds = 0
    config.instance_group.add(count=1, kind="KIND_CPU")
    for tensor in contract().outputs:
        if tensor.name in _PASSED_ON:
            _add(config.input, tensor)
    _add_scores(config, labels)
    _set_parameters(config, {"label_ids": ",".join(map(str, labels))})
    if biases:
        _set_parameters(config, {"label_biases": ",".join(map(str, biases))})
    return config


def _ensemble(spec: EngineSpec, labels: list[int]) -> Any:
    config = triton.ModelConfig(
        name=wire.PRM, platform="ensemble", max_batch_size=spec.max_batch_size
    )
    for tensor in contract().inputs:
        if tensor.name in _ENSEMBLE_INPUTS:
            # an ensemble's inputs are all given, and it leaves their reshaping to its steps
            given = {"optional": False, "ragged": False, "scalar": False}
            _add(config.input, tensor.model_copy(update=given))
    _add_scores(config, labels)
    steps = (
        (wire.PRM_ENGINE, _ENSEMBLE_INPUTS, _PASSED_ON),
        (wire.PRM_SCORE, _PASSED_ON, tuple(wire.SCORE_OUTPUTS)),
    )
    for model, inputs, outputs in steps:
        step = config.ensemble_scheduling.step.add(model_name=model, model_version=-1)
        for name in inputs:
            step.input_map[name] = name
        for name in outputs:
            step.output_map[name] = name
    return config


def _add_scores(config: Any, labels: list[int]) -> None:
    config.output.add(name="score", data_type="TYPE_FP32", dims=[1])
    config.output.add(name="label_logits", data_type="TYPE_FP32", dims=[len(labels)])


def _add(side: Any, tensor: Tensor) -> None:
    data_type = LOGITS if tensor.data_type == "logits" else tensor.data_type
    added = side.add(name=tensor.name, data_type=data_type, dims=tensor.dims)
    if tensor.scalar:
        added.reshape.SetInParent()
    if tensor.optional:
        added.optional = True
    if tensor.ragged:
        added.allow_ragged_batch = True


def _set_parameters(config: Any, values: dict[str, Any]) -> None:
    for key, value in values.items():
        config.parameters[key].string_value = str(value)
