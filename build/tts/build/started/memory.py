"""Memory of engines that are started, from shapes and data sheets, in absolute bytes.

Weights and KV cache are exact but for padding: for a token of a layer vLLM allocates heads x
(head_size + head_size_v) x bytes of a value (v1/kv_cache_interface.py, `AttentionSpec`), and so do
SGLang, TensorRT-LLM and llama.cpp. The rest is estimated:

- *activations* as those of a compiled engine (tensorrt/engine_memory.py);
- *logits*: float32 rows [vocabulary] per sequence in the sampler: logits, probabilities, their
  sorted copies and the indices of these, which take two. For verifiers of format likelihood, rows
  for each token of a step as well: logits in 16 bits, and twice in float32;
- *workspaces*: the process on the GPU (`Engine.context`), cuBLAS and the attention's workspaces,
  NCCL where there are several ranks;
- *graphs*: `Engine.graph` for each CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tts.base.errors import CheckpointError, ConfigError

from ..inputs import Inputs
from ..model_config import ModelConfig, config_of, known_model
from ..spec import (
    GGUF,
    Deployment,
    EngineSpec,
    GeneratorSpec,
    KvCache,
    Precision,
    RemoteGenerator,
    RemoteVerifier,
    Role,
    RoleSpec,
    SharedVerifier,
    StartedSpec,
    StartedVerifier,
    TensorRTEngine,
    TensorRTSpec,
    VerifierRole,
    VerifierSpec,
)
from ..tensorrt import contract, engine_memory
from ..tensorrt.engine_memory import COMMUNICATION, RankMemory
from ..tensorrt.gpus import GIB
from ..tensorrt.memory_plan import MemoryPlan, plan_memory, whole_blocks
from ..verifier_heads import Head, head_of
from .engines import ENGINES, Budget, Engine

WORKSPACE = int(0.50 * GIB)
"""cuBLAS and attention workspaces of one rank: a guess, until it is measured."""
INVARIANT_WORKSPACE = 2 * GIB
"""FlashInfer's, where vLLM is batch invariant (v1/attention/backends/flashinfer.py)."""
SAMPLER_ROWS = 6
PROMPT_ROW = 2 + 4 + 4
"""Bytes per vocabulary entry of a prompt's token whose log-probabilities are read."""
STEP_TOKENS: Mapping[Role, int] = {"generator": 2048, "verifier": 8192}
"""Tokens of a step: short ones let new requests in soon, long ones read prompts fast."""
PREFILL_SEQUENCES = 64
"""Sequences of a verifier that only reads: its steps are filled by fewer."""
CPU_POOL = 4 * GIB
"""The largest KV cache on CPUs that nobody stated: vLLM's default."""
_STORED: Mapping[str, Precision] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp16"}
"""How engines load a checkpoint by default: what is stored in 32 bits they round to 16."""


def sequences_of(deployment: Deployment, role: Role) -> int:
    """The upper bound of sequences in a started engine."""
    spec, judge = deployment.started()[role], judge_of(deployment, role)
    if spec.max_batch_size is not None:
        return spec.max_batch_size
    judging = 0
    if judge:
        judging = judge.in_flight if judge.facts.writes else PREFILL_SEQUENCES
        if spec.target == "llama.cpp" and not judge.facts.writes:
            # a slot is as long as the context, and there whether it is used or not
            judging = max(1, judge.in_flight // spec.max_seq_len)
    return judging + (deployment.generator.in_flight_requests if role == "generator" else 0)


def shares(deployment: Deployment) -> bool:
    """Whether the engine that is started for the generator is the verifier's as well."""
    verifier = deployment.verifier
    return isinstance(verifier, StartedVerifier) and verifier.same_as is not None


def own_head(spec: StartedSpec) -> tuple[str, Head] | None:
    """The architecture and the head of a model that judges with one; None for others."""
    data = _known_config(spec)
    headed = data and head_of(data)
    return (data["architectures"][0], headed[1]) if data and headed else None


def tokens_of(deployment: Deployment, role: Role) -> int:
    """The upper bound of tokens of a step of a started engine."""
    spec = deployment.started()[role]
    tokens = max(spec.max_num_tokens or STEP_TOKENS[role], sequences_of(deployment, role))
    whole = deployment.gpu is None and spec.target == "vllm"
    return max(tokens, spec.max_seq_len) if whole or scores_steps(spec) else tokens


def scores_steps(spec: StartedSpec) -> bool:
    """Whether a head of its own scores steps: vLLM computes such prompts whole, and each anew."""
    headed = own_head(spec) if ENGINES[spec.target].heads else None
    return headed is not None and headed[1].scores == "steps"


def judge_of(deployment: Deployment, role: Role) -> VerifierRole | None:
    """The verifier that a started engine is, or is as well; None: it only writes."""
    verifier = deployment.verifier
    judges = isinstance(verifier, VerifierRole) and (role == "verifier" or shares(deployment))
    return verifier if judges and isinstance(verifier, VerifierRole) else None


def as_engines(deployment: Deployment) -> Deployment:
    """The deployment with its started engines as the planner knows engines: their precision, pools
    and places; for `plan_memory`, and for what else reads weights, pools and batches.

    Raises CheckpointError where a model's shape is not known.
    """
    started = deployment.started()
    update: dict[str, Any] = {role: _as_engine(deployment, role) for role in started}
    for role, spec in deployment.engines().items():  # on a CPU, and none of the planner's
        kind = RemoteGenerator if role == "generator" else RemoteVerifier
        elsewhere = _fields(spec, kind) | {"tokenizer": spec.tokenizer_folder}
        update[role] = kind.model_construct(**elsewhere)
    if shares(deployment):
        update["verifier"] = SharedVerifier.model_construct(
            **_fields(deployment.roles()["verifier"], SharedVerifier)
        )
    if deployment.gpu:
        update["tensorrt"] = TensorRTSpec(gpu=deployment.gpu)
    return deployment.model_copy(update={"target": next(iter(started.values())).target, **update})


def planned(deployment: Deployment) -> Deployment:
    """The deployment, its started engines with planned pools as engines; raises as `budgets`."""
    if not deployment.started():
        return deployment
    there = as_engines(deployment)
    update: dict[str, Any] = {}
    for role, budget in budgets(deployment).items():
        engine = there.engines()[role]
        block = engine.kv_cache.block_size
        update[role] = engine.with_pool((budget.kv_tokens or 0) // block * block)
    return there.model_copy(update=update)


def config_folder(spec: StartedSpec) -> Path:
    """The folder that describes the model: its checkpoint, or else that of its tokenizer."""
    described = (spec.checkpoint / "config.json").is_file() or known_model(spec.checkpoint)
    return spec.checkpoint if described or spec.tokenizer is None else spec.tokenizer


def is_known(spec: StartedSpec) -> bool:
    """Whether the model's shape is known without a network."""
    return bool(_known_config(spec))


def _known_config(spec: StartedSpec) -> Mapping[str, Any] | None:
    """The model's config.json, here or as published; None where it is not known."""
    try:
        return config_of(config_folder(spec))
    except CheckpointError:
        return None


def plan_started(deployment: Deployment) -> MemoryPlan:
    """The GPUs' plan of started engines; raises ConfigError, or CheckpointError without a shape."""
    for role, spec in deployment.started().items():
        problem = contract.precision_problem(deployment.gpu or "", spec.precision)
        if spec.precision == "fp8" and problem:
            raise ConfigError(
                f"Deployment {deployment.name!r}: {role}.precision is fp8 on {deployment.gpu}: "
                f"{problem}.",
                hint=f"Set {role}.precision to auto, or gpu to another GPU.",
            )
    there = as_engines(deployment)
    inputs = Inputs(there)
    stated = {}
    for role, spec in deployment.started().items():
        each = _ranks(deployment, role, inputs.engines[role].shape, there.engines()[role])[0]
        if spec.target == "llama.cpp":
            stated[role] = sequences_of(deployment, role) * spec.max_seq_len
        elif spec.kv_gib is not None:
            stated[role] = int(spec.kv_gib * GIB) // each.kv_bytes_per_token
            _require_sequence(deployment, role, stated[role], each.kv_bytes_per_token)
    return plan_memory(there, inputs, rank_memory=partial(_ranks, deployment), stated=stated)


def budgets(deployment: Deployment) -> dict[Role, Budget]:
    """What each started engine gets; raises ConfigError for what does not fit.

    Raises CheckpointError where a pool has to be planned for a model whose shape is not known.
    """
    try:
        if deployment.gpu is None:
            return {role: _on_cpu(deployment, role) for role in deployment.started()}
        return _on_gpus(deployment, plan_started(deployment))
    except CheckpointError as error:
        stated = {
            role: Budget(int((spec.kv_gib or 0) * GIB), None, None, None, None)
            for role, spec in deployment.started().items()
            if spec.kv_gib is not None or spec.target == "llama.cpp"  # whose pool is its context
        }
        if len(stated) < len(deployment.started()):
            raise CheckpointError(
                error.message, hint=f"{error.hint or ''} Or state kv_gib of each model.".strip()
            ) from error
        return stated


def _on_gpus(deployment: Deployment, plan: MemoryPlan) -> dict[Role, Budget]:
    shares_of: dict[Role, Budget] = {}
    before: dict[int, int] = {}  # bytes on each GPU of what starts earlier
    for role, spec in deployment.started().items():
        engine, rank = plan.engines[role], plan.engines[role].ranks[0]
        cache = engine.tokens * rank.kv_bytes_per_token
        others = max(before.get(device, 0) for device in spec.devices)
        free = plan.gpu.memory - others - rank.fixed
        shares_of[role] = Budget(
            kv_bytes=cache,
            kv_tokens=engine.tokens,
            weights=rank.weights,
            share=math.ceil(1000 * (rank.fixed + cache) / plan.gpu.memory) / 1000,
            free_share=math.floor(10_000 * cache / free) / 10_000,
        )
        for device in spec.devices:
            before[device] = before.get(device, 0) + rank.fixed + cache
    return shares_of


def _on_cpu(deployment: Deployment, role: Role) -> Budget:
    spec, there = deployment.started()[role], as_engines(deployment)
    shape, engine = Inputs(there).engines[role].shape, there.engines()[role]
    rank = _ranks(deployment, role, shape, engine)[0]
    each, sequences = rank.kv_bytes_per_token, sequences_of(deployment, role)
    least, most = (count * whole_blocks(engine) * each for count in (1, sequences))
    cache = most
    if spec.kv_gib is not None:
        cache = int(spec.kv_gib * GIB)
    elif spec.target != "llama.cpp":
        cache = max(least, min(most, CPU_POOL))
    _require_sequence(deployment, role, cache // each, each)
    block = engine.kv_cache.block_size
    return Budget(cache, cache // each // block * block, rank.weights, None, None)


def _require_sequence(deployment: Deployment, role: Role, tokens: int, each: int) -> None:
    """Refuse a stated pool of so many tokens, of `each` bytes, that does not hold one sequence."""
    spec, engine = deployment.started()[role], as_engines(deployment).engines()[role]
    block = engine.kv_cache.block_size
    if tokens // block * block < (length := whole_blocks(engine)):
        raise ConfigError(
            f"Deployment {deployment.name!r}: {role}.kv_gib is {spec.kv_gib:g}, but one sequence "
            f"of {role}.max_seq_len = {spec.max_seq_len} takes "
            f"{length * each / GIB:.2f} GiB.",
            hint=f"Raise {role}.kv_gib, or lower {role}.max_seq_len.",
        )


def _ranks(
    deployment: Deployment, role: Role, shape: ModelConfig, spec: EngineSpec
) -> tuple[RankMemory, ...]:
    """Memory of each rank of an engine, all alike."""
    started = deployment.started()[role]
    engine, tp = ENGINES[started.target], started.tensor_parallel
    wide = 2 if started.precision == "fp32" else 1
    stored = engine_memory.weights_of(shape, spec.precision, spec.placement, 0)
    matrix = 2 * -(-shape.vocab_size // tp) * shape.hidden_size
    head = 0 if shape.tie_word_embeddings else matrix
    logits = SAMPLER_ROWS * 4 * spec.max_batch_size * shape.vocab_size
    if shape.head:  # in float32, whatever the rest is in
        head = 4 * sum(map(math.prod, shape.head.tensors(shape.hidden_size).values()))
        logits = 0
    judge = judge_of(deployment, role)
    if judge and judge.facts.output == "likelihood":
        logits += min(spec.max_num_tokens, spec.max_seq_len) * PROMPT_ROW * shape.vocab_size
    base = engine_memory.ranks_of(shape, spec)[0]
    # a GGUF file is loaded as it is
    gguf = started.checkpoint if started.checkpoint.suffix == GGUF else None
    file_size = gguf.stat().st_size if gguf and gguf.is_file() else 0
    rank = replace(
        base,
        weights=file_size // tp or wide * (stored.layers + stored.experts + matrix) + head,
        activations=wide * base.activations,
        logits=logits,
        workspaces=_workspaces(deployment, engine, tp),
        graphs=engine.graph * engine.graphs(spec.max_batch_size) if deployment.gpu else 0,
        transfer=0,
        kv_bytes_per_token=wide * base.kv_bytes_per_token,
    )
    return (rank,) * tp


def _workspaces(deployment: Deployment, engine: Engine, ranks: int) -> int:
    if deployment.gpu is None:
        return 0
    invariant = deployment.deterministic and deployment.gpu == "b200"
    return (
        int(engine.context * GIB)
        + (INVARIANT_WORKSPACE if invariant else WORKSPACE)
        + (COMMUNICATION if ranks > 1 else 0)
    )


def _as_engine(deployment: Deployment, role: Role) -> EngineSpec:
    """One engine as the planner knows it, unchecked: it may do what compiled engines cannot."""
    spec = deployment.started()[role]
    kind = GeneratorSpec if role == "generator" else VerifierSpec
    folder = config_folder(spec)
    data = config_of(folder)
    place = TensorRTEngine(tensor_parallel=spec.tensor_parallel, gpus=(spec.devices,))
    precision = stored_precision(folder, data) if spec.precision == "auto" else spec.precision
    engine = ENGINES[spec.target]
    block = (deployment.gpu is None and engine.cpu_block) or engine.block
    return kind.model_construct(
        **_fields(spec, kind)
        | {
            "checkpoint": folder,
            "precision": precision,
            "max_batch_size": sequences_of(deployment, role),
            "max_num_tokens": tokens_of(deployment, role),
            "kv_cache": KvCache(block_size=block, tokens=block, reuse=not scores_steps(spec)),
            "tensorrt": place,
        }
    )


def _fields(spec: RoleSpec, kind: type[RoleSpec]) -> dict[str, Any]:
    return {name: value for name, value in spec if name in kind.model_fields}


def stored_precision(folder: Path, config: Mapping[str, Any]) -> Precision:
    """The precision in which engines load a checkpoint; raises CheckpointError where unknown."""
    method = config.get("quantization_config")
    if not method:
        return _STORED.get(str(config.get("dtype") or config.get("torch_dtype")), "bf16")
    name = str(method.get("quant_method", "")).lower()
    bits = method.get("bits", method.get("w_bit"))
    for group in (method.get("config_groups") or {}).values():  # of compressed-tensors
        bits = (group.get("weights") or {}).get("num_bits", bits)
    if name == "fp8" or "FP8" in str(method.get("quant_algo")) or (bits == 8 and name != "gptq"):
        return "fp8"
    if bits in (4, 8):
        return "int4_awq" if bits == 4 else "int8"
    raise CheckpointError(
        f"{folder}/config.json: the plan does not know quantisation {name or method!r:.60}."
    )
