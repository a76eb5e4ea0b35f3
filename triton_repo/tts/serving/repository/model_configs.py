"""The configuration of each model of a repository, as Triton's own message.

Tensors are those of the contract's data and of `wire`. Parameters carry the names of TensorRT-LLM's
backend; what an engine of target openvino is opened with is one parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from tts.base import paths
from tts.base.errors import CheckpointError
from tts.build.inputs import EngineInputs, Inputs
from tts.build.model_config import known_model
from tts.build.spec import Deployment, EngineSpec, Role
from tts.build.token_texts import grammar_tokenizer
from tts.build.tokenizer import Tokenizer
from tts.build.verifier_heads import HEAD_COLUMNS, HEAD_WEIGHTS
from tts.build.verifiers.dialogue import head_kind
from tts.engines import wire
from tts.engines.engine_messages import OPENING, encode_opening
from tts.engines.opening import opening_of

from ..contract import Tensor, contract
from .digest import DIGEST, deployment_digest

LOGITS = "TYPE_FP32"
"""The verifier's engine is built with --logits_dtype float32."""
STATISTICS_S = 0.5
_SCORED = ("input_ids", "input_lengths", "request_output_len", "return_generation_logits")
_ANSWERED = ("output_ids", "sequence_length", "generation_logits")

TritonConfig = Any
"""A ModelConfig; the package of its class has no types."""


def model_configs(
    deployment: Deployment,
    *,
    iteration_log: bool = False,
    digest: str | None = None,
    inputs: Inputs | None = None,
) -> dict[str, TritonConfig]:
    """The configuration of every model of a deployment, by name; each holds the digest.

    `digest` is by default the deployment's own. Raises CheckpointError for labels that are not
    known, and of target openvino BuildError for an engine that is not built.
    """
    make = {"openvino": _openvino, "tensorrt": _tensorrt}[deployment.target]
    inputs = inputs or Inputs(deployment)
    configs = [make(inputs, role, iteration_log) for role in deployment.engines()]
    if deployment.target == "tensorrt" and (role := _judge(deployment)):
        weights = label_weights(inputs.roles["verifier"])
        configs += [_score(inputs, role, weights), _ensemble(deployment, role, len(weights))]
    for config in configs:
        config.parameters[DIGEST].string_value = digest or deployment_digest(deployment)
    return {config.name: config for config in configs}


def iteration_logs(deployment: Deployment) -> dict[Role, Path]:
    """The files to which a server with `iteration_log` writes the iterations of its engines."""
    folder = paths.server_dir(deployment.name)
    return {role: folder / f"{role}-iterations.jsonl" for role in deployment.engines()}


def _openvino(inputs: Inputs, role: Role, iteration_log: bool) -> TritonConfig:
    """An engine behind a Python model of ours: `generator`, or `prm`.

    A verifier that writes has the generator's tensors, scores among them.
    """
    deployment, spec = inputs.deployment, inputs.engines[role].spec
    config = _engine(wire.GENERATOR if role == "generator" else wire.PRM, "python", spec)
    if spec.writes:
        _declare(config, wire.INPUTS, wire.OUTPUTS)
        for tensor, kind in wire.HOST_INPUTS.items():
            _add(config.input, Tensor(name=tensor, data_type=_type(kind), dims=[1], **_OPTIONAL))
    else:  # what the ensemble of the other targets takes and answers
        _take_prompts(config, ragged=True)
        _add_scores(config, 2)
    for name, kind in wire.ROW_OUTPUTS.items():
        config.output.add(name=name, data_type=_type(kind), dims=[1])
    opening = opening_of(
        deployment,
        role,
        decoupled=spec.writes,
        statistics_s=STATISTICS_S,
        iteration_log=iteration_logs(deployment)[role] if iteration_log else None,
        inputs=inputs,
    )
    _set(config, {OPENING: encode_opening(opening)})
    return config


def _tensorrt(inputs: Inputs, role: Role, _: bool) -> TritonConfig:
    """An engine of TensorRT-LLM's C++ backend, with all tensors of NVIDIA's own model."""
    deployment = inputs.deployment
    spec = deployment.engines()[role]
    config = _engine(_engine_model(deployment, role), "tensorrtllm", spec)
    _declare(config, *({each.name for each in side} for side in _SIDES))
    grammars = grammar_tokenizer_file(deployment) if role == "generator" else None
    _set(
        config,
        {
            "gpt_model_type": "inflight_fused_batching",
            "gpt_model_path": paths.engine_dir(deployment.name, role),
            "gpu_device_ids": ";".join(map(_joined, spec.placement.replicas)),
            # A number of tokens, not a share of what is free, which would depend on the order of
            # loading. The smaller of the two wins, so the share is nearly everything; `tts plan`
            # says how much more than planned may be in use before it is the smaller one after all.
            "max_tokens_in_paged_kv_cache": spec.kv_cache.tokens,
            "kv_cache_free_gpu_mem_fraction": "0.99",
            "enable_kv_cache_reuse": spec.kv_cache.reuse,
            "kv_cache_host_memory_bytes": int(spec.placement.kv_host_gib * 1024**3),
            "kv_cache_onboard_blocks": True,
            "batch_scheduler_policy": spec.scheduling_policy,
            "enable_chunked_context": spec.chunked_context,
            "max_beam_width": 1,
            "decoding_mode": "top_k_top_p",
            # pruned work runs on until its cancellation is noticed, by default 100 ms later
            "cancellation_check_period_ms": 5,
            "recv_poll_period_ms": 1,
            "stats_check_period_ms": 100,
            "exclude_input_in_output": True,
            "normalize_log_probs": True,
            "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
            # grammars are matched against the texts of the tokens, if both are given; a model that
            # lacks one of the keys does not load
            "tokenizer_dir": "",
            "guided_decoding_backend": "xgrammar" if grammars else "",
            "xgrammar_tokenizer_info_path": grammars or "",
        },
    )
    return config


def _score(inputs: Inputs, role: Role, weights: Mapping[int, float]) -> TritonConfig:
    """The model that makes a score of logits.

    TensorRT-LLM answers only if output_ids and sequence_length are requested, and an ensemble
    requests what it maps: so both are inputs here.
    """
    spec = inputs.deployment.engines()[role]
    config = _model(wire.PRM_SCORE, spec, backend="python")
    config.dynamic_batching.SetInParent()
    config.instance_group.add(count=1, kind="KIND_CPU")
    for tensor in contract().outputs:
        if tensor.name in _ANSWERED:
            _add(config.input, tensor)
    _add_scores(config, len(weights))
    # which of the engine's logits are the labels, the best first, and how much each counts
    _set(config, {"label_ids": _joined(weights), "label_weights": _joined(weights.values())})
    # of the verifier's head: the engine has no place for it
    if biases := label_biases(inputs.roles["verifier"]):
        _set(config, {"label_biases": _joined(biases)})
    return config


def _ensemble(deployment: Deployment, role: Role, labels: int) -> TritonConfig:
    """`prm`: an engine and `prm_score`.

    An ensemble cannot supply constants: the client sends request_output_len 1 and
    return_generation_logits true. It is decoupled if its engine is: Triton makes it so in any case
    (ValidateEnsembleConfig in ensemble_utils.cc of triton-inference-server/core).
    """
    spec = deployment.engines()[role]
    config = _model(wire.PRM, spec, platform="ensemble")
    config.model_transaction_policy.decoupled = spec.writes
    _take_prompts(config)
    _add_scores(config, labels)
    for model, inputs, outputs in (
        (_engine_model(deployment, role), _SCORED, _ANSWERED),
        (wire.PRM_SCORE, _ANSWERED, wire.SCORE_OUTPUTS),
    ):
        step = config.ensemble_scheduling.step.add(model_name=model, model_version=-1)
        step.input_map.update({name: name for name in inputs})
        step.output_map.update({name: name for name in outputs})
    return config


def _engine(name: str, backend: str, spec: EngineSpec) -> TritonConfig:
    config = model_config_pb2.ModelConfig(
        name=name, backend=backend, max_batch_size=spec.max_batch_size
    )
    config.model_transaction_policy.decoupled = spec.writes
    # Requests are batched in flight, inside the engine. Triton's batcher only hands over together
    # what arrived together; it never waits.
    config.dynamic_batching.preferred_batch_size.append(spec.max_batch_size)
    config.dynamic_batching.default_queue_policy.SetInParent()
    # an engine chooses its GPUs itself (gpu_device_ids); Triton only counts the replicas
    config.instance_group.add(count=len(spec.placement.replicas), kind="KIND_CPU")
    return config


def _model(name: str, spec: EngineSpec, **kind: str) -> TritonConfig:
    return model_config_pb2.ModelConfig(name=name, max_batch_size=spec.max_batch_size, **kind)


def _judge(deployment: Deployment) -> Role | None:
    """The engine whose logits scores are made of; None where all verdicts are texts."""
    return next((role for role, spec in deployment.engines().items() if spec.judges), None)


def _engine_model(deployment: Deployment, role: Role) -> str:
    """`generator`, or the verifier's engine: `prm` by itself where no scores are made of it."""
    if role == "generator":
        return wire.GENERATOR
    return wire.PRM_ENGINE if deployment.engines()[role].judges else wire.PRM


_SIDES = contract().inputs, contract().outputs
_OPTIONAL = {"optional": True, "scalar": True}


def _declare(config: TritonConfig, inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Declare these tensors as the contract has them, in its order."""
    for declared, facts, names in zip(
        (config.input, config.output), _SIDES, (inputs, outputs), strict=True
    ):
        for tensor in facts:
            if tensor.name in names:
                _add(declared, tensor)


def _take_prompts(config: TritonConfig, *, ragged: bool = False) -> None:
    """What `prm` takes: all of it must be given, and an ensemble leaves reshaping to its steps."""
    for tensor in contract().inputs:
        if tensor.name in _SCORED:
            changes = {"optional": False, "ragged": ragged and tensor.ragged, "scalar": False}
            _add(config.input, tensor.model_copy(update=changes))


def _add_scores(config: TritonConfig, labels: int) -> None:
    config.output.add(name="score", data_type="TYPE_FP32", dims=[1])
    config.output.add(name="label_logits", data_type="TYPE_FP32", dims=[labels])


def _type(kind: str) -> str:
    return "TYPE_STRING" if kind == "BYTES" else f"TYPE_{kind}"


def _add(declared: Any, tensor: Tensor) -> None:
    kind = LOGITS if tensor.data_type == "logits" else tensor.data_type
    added = declared.add(name=tensor.name, data_type=kind, dims=tensor.dims)
    if tensor.scalar:
        added.reshape.SetInParent()
    if tensor.optional:
        added.optional = True
    if tensor.ragged:
        added.allow_ragged_batch = True


def _set(config: TritonConfig, parameters: Mapping[str, object]) -> None:
    for key, value in parameters.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        config.parameters[key].string_value = text


def _joined(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


FILE = "xgrammar_tokenizer_info.json"


def grammar_tokenizer_file(deployment: Deployment) -> Path | None:
    """Where the file of a deployment lies; None if its backend reads none.

    It is beside the generator's engine, which is brought into containers and clusters: for a
    ConfigMap it is too large.
    """
    if deployment.target != "tensorrt" or not deployment.generator.guided_decoding:
        return None
    return paths.engine_dir(deployment.name, "generator") / FILE


def write_grammar_tokenizer(deployment: Deployment) -> None:
    """Write the file if the engine that it is for is built here; raises CheckpointError."""
    file = grammar_tokenizer_file(deployment)
    if file is None or not file.parent.is_dir():
        return
    text = grammar_tokenizer(Tokenizer(deployment.generator.tokenizer_folder))
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        temporary = file.with_name(f".{FILE}.new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)


def label_weights(inputs: EngineInputs) -> dict[int, float]:
    """Token ids of the labels with their weights, the best first.

    The ids are those of the verifier's tokenizer, or, before its checkpoint is downloaded, those of
    the published model of its name. Raises CheckpointError if it is neither, or if its tokenizer
    cannot make the labels or the dialogue. Columns that stand for no tokens are the first two.
    """
    if (inputs.folder / "tokenizer.json").is_file():
        return inputs.label_weights
    if (inputs.is_here or inputs.is_published) and inputs.shape.head:
        return dict(zip(HEAD_COLUMNS, HEAD_WEIGHTS, strict=True))
    return _published(inputs.folder, inputs.verifier.labels)


def label_biases(inputs: EngineInputs) -> list[float]:
    """The bias added to the label logits, since the engine's matrix has none; empty for most.

    Raises CheckpointError for a head that is not in the checkpoint.
    """
    if head_kind(inputs.folder, inputs.verifier) == "labels":
        return []
    if not inputs.is_here:
        raise CheckpointError(
            f"The biases of the verifier's head are not known: {inputs.folder} is not here.",
            hint="Download the verifier's checkpoint to that folder: its weights hold them.",
        )
    _, bias = inputs.checkpoint.head_layers()[-1]
    return [float(value) for value in bias]


def _published(checkpoint: Path, labels: Mapping[str, float]) -> dict[int, float]:
    model = known_model(checkpoint)
    ids = (model and (model.label_token_ids or model.answer_token_ids)) or {}
    if not labels:
        raise CheckpointError(
            f"The labels behind the verifier's critiques are not known: {checkpoint} has no "
            "tokenizer.json.",
            hint="Put the verifier's checkpoint (at least its tokenizer files) into that folder.",
        )
    missing = [label for label in labels if label not in ids]
    if missing:
        raise CheckpointError(
            f"The token ids of the labels {' and '.join(map(repr, missing))} are not known: "
            f"{checkpoint} has no tokenizer.json, and "
            + ("no verifier of that name is known." if not ids else "its published ones differ."),
            hint="Put the verifier's checkpoint (at least its tokenizer files) into that folder.",
        )
    return {ids[label]: weight for label, weight in labels.items()}
