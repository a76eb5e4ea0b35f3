"""Memory of a served pair of target openvino, from shapes alone, and whether this machine has it.

OpenVINO maps an engine's file, and at the first step each matrix is copied into the layout of the
CPU's kernels; then the host gives the mapping back (tts.engines.pipeline). What stays:

- *copies*: every matrix but the embedding, in the engine's precision. An output matrix that is tied
  to the embedding is copied as well. Kernels for int8 weights differ by the number of rows: in an
  engine that writes, with its long prompts and single tokens, projections of the attention may be
  copied twice (measured: all of them, or those of keys and values); all are counted twice.
- *embedding*: rows that prompts name are read from the file. The kernel maps far more than the rows
  (up to 2 MiB around each), so the whole table is counted; it may take these pages back.
- *KV pool*: exact. It is reserved at the start and written block by block.
- *working space*: estimated as the tensors of about one layer for max_num_tokens tokens, and the
  logits of max_batch_size tokens, in the arithmetic's precision and again in fp32.
- *process*: Python, OpenVINO and the graph in the engine's process, Python in that of its Triton
  model, each with its part of what processes share. Measured.

benchmarks/README.md compares it with what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tts.base.errors import ConfigError
from tts.base.machine_limits import memory_available, memory_limit
from tts.base.shown_text import gib

from ..checkpoint import EMBEDDING, LM_HEAD, expected_tensors
from ..inputs import Inputs, judged_by
from ..model_config import ModelConfig
from ..spec import Deployment, EngineSpec, Precision, Role, VerifierSpec
from .transformer import SCORE_LOGITS, label_precision

MIB = 1 << 20
PROCESS = 120 * MIB
"""One engine's process and its Triton model's, without weights, KV pool and working space."""
SERVER = 48 * MIB
"""tritonserver, measured when a small model that made scores of logits ran beside the engines."""
STORED_BYTES: Mapping[Precision, int] = {"fp32": 4, "bf16": 2, "int8": 1}
"""Bytes of one weight."""
_SCALE = 4
"""One fp32 per row of an int8 matrix."""


@dataclass(frozen=True)
class EngineMemory:
    """One engine in its process."""

    file: int
    """Its weight file, mapped while it loads."""
    copies: int
    embedding: int
    kv_cache: int
    working: int
    process: int = PROCESS

    @property
    def needed(self) -> int:
        """Memory that the kernel cannot take back."""
        return self.copies + self.kv_cache + self.working + self.process

    @property
    def resident(self) -> int:
        """All of its memory when the pool is full."""
        return self.needed + self.embedding


@dataclass(frozen=True)
class HostMemoryPlan:
    """A pair and its server, all in the memory of one machine."""

    deployment: Deployment
    engines: Mapping[Role, EngineMemory]
    judged_by: str | None
    """What the verifier judges with, in words; None where it runs elsewhere."""
    server: int = SERVER

    @property
    def needed(self) -> int:
        """Memory of the pair that the kernel cannot take back."""
        return self.server + sum(engine.needed for engine in self.engines.values())

    @property
    def resident(self) -> int:
        """All that the pair holds when both pools are full."""
        return self.server + sum(engine.resident for engine in self.engines.values())

    @property
    def saved(self) -> int:
        """The second engine's weights and process, where one has both roles."""
        if not self.deployment.shares_engine:
            return 0
        engine = self.engines["generator"]
        return engine.copies + engine.embedding + engine.process


def plan_host_memory(deployment: Deployment, inputs: Inputs | None = None) -> HostMemoryPlan:
    """The memory of a pair on its machine; raises ConfigError for others, CheckpointError."""
    if deployment.target != "openvino":
        raise ConfigError(
            f"Deployment {deployment.name!r}: target is {deployment.target!r}; its engines are in "
            "the memory of GPUs."
        )
    specs = deployment.engines()
    shapes = (inputs or Inputs(deployment)).shapes()
    engines = {role: engine_memory(shapes[role], spec) for role, spec in specs.items()}
    judge = None
    if "verifier" in specs:
        judge = judged_by(shapes["verifier"], specs["verifier"])
    elif deployment.shares_engine:
        judge = judged_by(shapes["generator"], deployment.verifier_model)
    return HostMemoryPlan(deployment, engines, judge)


def engine_memory(shape: ModelConfig, spec: EngineSpec) -> EngineMemory:
    """The memory of one engine."""
    precision = spec.precision
    table = _stored((shape.vocab_size, shape.hidden_size), precision)
    outer = (EMBEDDING, LM_HEAD, *(shape.head.tensors(shape.hidden_size) if shape.head else ()))
    inner = sum(
        _stored(size, precision)
        for name, size in expected_tensors(shape).items()
        if len(size) == 2 and name not in outer
    )
    whole = spec.writes
    if isinstance(spec, VerifierSpec) and not whole:  # of labels, or a head of its own
        inner_layers = len(shape.head.layers) - 1 if shape.head else 0
        rows = (len(spec.labels) or SCORE_LOGITS) + inner_layers * shape.hidden_size
        head = _stored((rows, shape.hidden_size), label_precision(precision))
    else:
        head = table
    in_file = 0 if whole and shape.tie_word_embeddings else head
    twice = _attention(shape) if whole and precision == "int8" else 0
    columns = shape.num_layers * shape.num_kv_heads * shape.head_dim
    per_token = 2 * columns * _computed_bytes(spec)
    return EngineMemory(
        file=table + inner + in_file,
        copies=inner + head + twice,
        embedding=table,
        kv_cache=spec.kv_cache.blocks * spec.kv_cache.block_size * per_token,
        working=_working(shape, spec),
    )


def _stored(shape: tuple[int, ...], precision: Precision) -> int:
    """Bytes of a matrix as the engine stores it."""
    scales = shape[0] * _SCALE if precision == "int8" else 0
    return math.prod(shape) * STORED_BYTES[precision] + scales


def _attention(shape: ModelConfig) -> int:
    """Weights of the projections to queries, keys and values, and back."""
    heads = 2 * (shape.num_heads + shape.num_kv_heads)
    return shape.num_layers * shape.hidden_size * heads * shape.head_dim


def _computed_bytes(spec: EngineSpec) -> int:
    return 2 if spec.precision == "bf16" else 4


def _working(shape: ModelConfig, spec: EngineSpec) -> int:
    heads = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    width = 6 * shape.hidden_size + 2 * heads + 3 * shape.intermediate_size
    logits = shape.vocab_size if spec.writes else SCORE_LOGITS
    rows = min(spec.max_batch_size, spec.max_num_tokens)
    each = _computed_bytes(spec)
    return spec.max_num_tokens * width * each + rows * logits * (4 + each)


_FIX = (
    "Lower kv_cache.tokens, set a smaller precision (bf16 halves weights and KV pool, int8 makes "
    "weights a quarter of fp32), lower max_num_tokens and max_batch_size, or use a machine with "
    "more memory. `tts plan` shows what takes how much."
)


def require_memory(deployment: Deployment, inputs: Inputs | None = None) -> HostMemoryPlan:
    """Raise ConfigError, with the figures, for engines that this machine's memory cannot hold.

    Pages of the weight files are not counted: the kernel takes them back when it has to. Raises
    CheckpointError for a config.json that cannot be used.
    """
    plan, limit = plan_host_memory(deployment, inputs), memory_limit()
    if limit is not None and plan.needed > limit.size:
        raise ConfigError(f"{_needs(plan)}; there are {gib(limit.size)} in {limit.of}.", hint=_FIX)
    return plan


def shortage(plan: HostMemoryPlan) -> str | None:
    """A warning, with the figures, if other processes leave too little memory at present."""
    available = memory_available()
    if available is None or plan.needed <= available:
        return None
    return f"{_needs(plan)}; {gib(available)} are available now."


def _needs(plan: HostMemoryPlan) -> str:
    """The beginning of a sentence."""
    parts = ", ".join(f"the {role} {gib(engine.needed)}" for role, engine in plan.engines.items())
    return f"Deployment {plan.deployment.name!r} needs {gib(plan.needed)} of memory ({parts})"
