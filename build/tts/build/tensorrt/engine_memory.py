"""Device memory of one TensorRT-LLM engine, rank by rank, from shapes alone. All sizes in bytes.

Exact and estimated parts:

- *weights*: exact but for padding and alignment; the tensors are those of the unified checkpoint
  (docs/source/architecture/checkpoint.md of TensorRT-LLM). Embedding and lm_head stay in 16 bits in
  every precision. A tied lm_head is a tensor of its own: conversion fills it with a copy, and
  nothing promises that the builder keeps one of the two. The embedding is split over the ranks of
  the first pipeline stage where the conversion splits it (`splits_embedding`), else whole on each.
- *KV cache*: exact. 2 x layers x max(1, kv_heads / tp) x head_size x bytes of one value per token.
- *activations*: estimated. TensorRT fixes them at build time for max_num_tokens tokens and reuses
  one layer's memory for the next (docs/source/reference/memory.md), so they are the tensors of one
  layer (`_width` values per token), plus the 16-bit logits of max_batch_size tokens before they
  become float32: an upper bound of the sizes in public logs (the tests hold them).
- *logits*: estimated from two logs ("GPU memory for decoder" and "... for runtime buffers"), which
  are 5.7 and 1.4 float32 matrices [max_batch_size, vocabulary]; taken as 6 and 1.5. An engine built
  with gather_generation_logits keeps 8 more (kCACHE_LENGTH in TensorRT-LLM's runtimeBuffers.h).
- *workspaces*: a constant per rank. In the log of memory.md, 0.77 GiB of the GPU are in use beside
  what the lines account for: CUDA context, cuBLAS and the attention's workspace of one process.
- *transfer*: buffers that move KV blocks to other servers, allocated unused (TRANSFER_VARIABLE).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..model_config import ModelConfig
from ..spec import EngineSpec, Precision, TensorRTEngine
from .commands import splits_embedding
from .gpus import GIB

CONTEXT = int(0.60 * GIB)
"""CUDA context of one process. Every rank is counted as a process, as in orchestrator mode."""
WORKSPACE = int(0.25 * GIB)
"""cuBLAS and plug-in workspaces of one rank."""
COMMUNICATION = int(0.50 * GIB)
"""NCCL and all-reduce buffers of one rank, where an engine has several."""
DECODER_ROWS = 7.5
"""Float32 rows [vocabulary] per request of the decoder (6) and the runtime buffers (1.5)."""
GENERATION_LOGITS_ROWS = 8
"""Float32 rows per request that an engine with gather_generation_logits keeps."""
SERVER_CONTEXT = int(0.50 * GIB)
"""CUDA context of the server itself in orchestrator mode: Triton's backend makes a stream per
request on the server's own GPU (readInputsTensors in model_instance_state.cc)."""
TRANSFER_VARIABLE = "TRTLLM_KVCACHE_TRANSFER_BUFFER_SIZE"
"""Size of each KV transfer buffer, 512MB unless set (envUtils.cpp). Triton's backend configures a
cache transceiver for every model, whose CacheTransBufferManager allocates its buffers at once.
calculateMaxNumBlocks takes them off the memory for the KV pool before max_tokens is looked at, so
on a full GPU they would shrink the pool silently."""
TRANSFER_SIZE = "1MB"
"""The value that every launch sets: as small as possible, since no KV block ever leaves a
server."""
TRANSFER = 3 * 2 * 2**20
"""Transfer buffers of one rank: one to receive, up to two to send (1.0 to 1.2 line), each rounded
up to the 2 MiB that device memory is handed out in."""
AWQ_GROUP = 128
"""Input features that share one scale (int4_awq)."""


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters of a model. A tied head is the embedding and counted there once."""

    body: int
    """Layers and final norm."""
    active: int
    """Parameters of the body that one token passes through: fewer with experts."""
    head: int
    """Rows of the output matrix, tied or not."""
    embedding: int
    tied: bool

    @property
    def total(self) -> int:
        """All parameters, as the model's card counts them."""
        return self.body + self.embedding + (0 if self.tied else self.head)


@dataclass(frozen=True)
class RankMemory:
    """Bytes that one rank of an engine takes on its GPU beside its share of the KV cache."""

    weights: int
    streamed: int
    """Weights that every step reads: all but the embedding, of which it reads single rows."""
    activations: int
    logits: int
    """Decoder and runtime buffers, mostly logits."""
    workspaces: int
    transfer: int
    """KV transfer buffers."""
    kv_bytes_per_token: int
    graphs: int = 0
    """CUDA graphs, where an engine records them."""

    @property
    def fixed(self) -> int:
        """Everything but the KV cache."""
        parts = self.weights + self.activations + self.logits + self.workspaces
        return parts + self.graphs + self.transfer


@dataclass(frozen=True)
class WeightBytes:
    """Bytes of the weights of one rank that its steps read: all but the embedding."""

    layers: int
    """Layers without their experts, and the final norm."""
    experts: int
    """Experts of all layers, of which a step reads those that its tokens are sent to."""
    head: int

    @property
    def total(self) -> int:
        """Bytes that a step reads when it reaches every expert."""
        return self.layers + self.experts + self.head


@dataclass(frozen=True)
class _Linear:
    """`count` weight matrices of one size on one rank."""

    inputs: int
    outputs: int
    bias: bool = False
    count: int = 1
    active: int | None = None
    """Matrices that one token passes through; None: all."""


def parameters(shape: ModelConfig) -> Parameters:
    """Count the parameters of a whole model."""
    layer = active = _small(shape) + _router(shape)
    for linear in _linears(shape, TensorRTEngine()):
        each = linear.inputs * linear.outputs + (linear.outputs if linear.bias else 0)
        layer += linear.count * each
        active += (linear.count if linear.active is None else linear.active) * each
    matrix = shape.vocab_size * shape.hidden_size
    return Parameters(
        body=shape.num_layers * layer + shape.hidden_size,
        active=shape.num_layers * active + shape.hidden_size,
        head=matrix,
        embedding=matrix,
        tied=shape.tie_word_embeddings,
    )


def parameters_per_token(shape: ModelConfig) -> int:
    """Parameters that one token is multiplied with: of a mixture of experts, those it is sent to.

    All but the embedding, of which it takes a row; a head of a verifier's own stands in the place
    of the language head.
    """
    counts = parameters(shape)
    own = shape.head.tensors(shape.hidden_size).values() if shape.head else None
    return counts.active + (counts.head if own is None else sum(map(math.prod, own)))


def ranks_of(shape: ModelConfig, spec: EngineSpec) -> tuple[RankMemory, ...]:
    """Memory of each rank of one replica, in rank order (pipeline stage by stage)."""
    placement = spec.placement
    stages = [_stage(shape, spec, stage) for stage in range(placement.pipeline_parallel)]
    return tuple(stage for stage in stages for _ in range(placement.tensor_parallel))


def weights_of(
    shape: ModelConfig, precision: Precision, placement: TensorRTEngine, stage: int
) -> WeightBytes:
    """The weights of a rank of a pipeline stage; the last stage has the head."""
    layers = layers_of(shape, placement, stage)
    linears = [(each, _stored(each, precision)) for each in _linears(shape, placement)]
    experts = sum(each.count * stored for each, stored in linears if each.active is not None)
    others = sum(each.count * stored for each, stored in linears if each.active is None)
    others += 2 * _small(shape) + 4 * _router(shape)  # which is kept in float32
    last = stage == placement.pipeline_parallel - 1
    head = 2 * _share(shape.vocab_size, placement.tensor_parallel) * shape.hidden_size
    return WeightBytes(
        layers=layers * others + (2 * shape.hidden_size if last else 0),
        experts=layers * experts,
        head=head if last else 0,
    )


def layers_of(shape: ModelConfig, placement: TensorRTEngine, stage: int) -> int:
    """Layers of a pipeline stage: as equal as can be, the first stages have one more."""
    each, more = divmod(shape.num_layers, placement.pipeline_parallel)
    return each + (stage < more)


def kv_bytes_per_token(shape: ModelConfig, placement: TensorRTEngine, stage: int) -> int:
    """Bytes that one cached token takes on a rank of a pipeline stage."""
    heads = max(1, shape.num_kv_heads // placement.tensor_parallel)
    value = 1 if placement.kv_precision == "fp8" else 2
    return 2 * layers_of(shape, placement, stage) * heads * shape.head_dim * value


def kv_bytes_of(shape: ModelConfig, placement: TensorRTEngine) -> int:
    """Bytes of a token's KV cache, over one rank of each pipeline stage."""
    stages = range(placement.pipeline_parallel)
    return sum(kv_bytes_per_token(shape, placement, stage) for stage in stages)


def _stage(shape: ModelConfig, spec: EngineSpec, stage: int) -> RankMemory:
    placement = spec.placement
    tp = placement.tensor_parallel
    first, last = stage == 0, stage == placement.pipeline_parallel - 1
    streamed = weights_of(shape, spec.precision, placement, stage).total
    padded_vocabulary = _share(shape.vocab_size, tp) * tp
    rows = padded_vocabulary // tp if splits_embedding(spec) else shape.vocab_size
    embedding = 2 * rows * shape.hidden_size
    rows_kept = DECODER_ROWS + (GENERATION_LOGITS_ROWS if spec.judges else 0)
    logits = int(rows_kept * 4 * spec.max_batch_size * padded_vocabulary)
    activations = 2 * spec.max_num_tokens * _width(shape, placement)
    if last:
        activations += 2 * spec.max_batch_size * padded_vocabulary
    return RankMemory(
        weights=streamed + (embedding if first else 0),
        streamed=streamed,
        activations=activations,
        logits=logits if last else 0,
        workspaces=CONTEXT + WORKSPACE + (COMMUNICATION if placement.ranks > 1 else 0),
        transfer=TRANSFER,
        kv_bytes_per_token=kv_bytes_per_token(shape, placement, stage),
    )


def _linears(shape: ModelConfig, placement: TensorRTEngine) -> Iterator[_Linear]:
    """The weight matrices of one layer on one rank."""
    tp, hidden = placement.tensor_parallel, shape.hidden_size
    heads, kv_heads = _attention_heads(shape, tp)
    queries, values = heads * shape.head_dim, kv_heads * shape.head_dim
    yield _Linear(hidden, queries + 2 * values, bias=shape.qkv_bias)
    yield _Linear(queries, hidden, bias=shape.output_bias)
    experts = shape.experts
    if experts is None:
        inner = _share(shape.intermediate_size, tp)
        yield _Linear(hidden, inner, bias=shape.mlp_bias, count=2)
        yield _Linear(inner, hidden, bias=shape.mlp_bias)
        return
    inner = _share(experts.intermediate_size, tp // placement.expert_parallel)
    here = _share(experts.count, placement.expert_parallel)
    yield _Linear(hidden, inner, count=2 * here, active=2 * experts.per_token)
    yield _Linear(inner, hidden, count=here, active=experts.per_token)
    if experts.shared_intermediate_size:
        inner = _share(experts.shared_intermediate_size, tp)
        yield _Linear(hidden, inner, count=2)
        yield _Linear(inner, hidden)


def _width(shape: ModelConfig, placement: TensorRTEngine) -> int:
    """Values per token that are alive at a time while a layer is computed."""
    tp, hidden = placement.tensor_parallel, shape.hidden_size
    heads, kv_heads = _attention_heads(shape, tp)
    attention = 2 * (heads + 2 * kv_heads) * shape.head_dim
    experts = shape.experts
    if experts is None:
        mlp = 3 * _share(shape.intermediate_size, tp)
    else:
        inner = _share(experts.intermediate_size, tp // placement.expert_parallel)
        # an expert works on its own copy of the token, and writes another one
        mlp = experts.per_token * (3 * inner + 2 * hidden)
        mlp += 3 * _share(experts.shared_intermediate_size, tp)
    return 4 * hidden + attention + mlp


def _attention_heads(shape: ModelConfig, tp: int) -> tuple[int, int]:
    return _share(shape.num_heads, tp), max(1, shape.num_kv_heads // tp)


def _small(shape: ModelConfig) -> int:
    """Parameters of a layer's norms, and of the gate of a shared expert: never quantised."""
    gate = shape.hidden_size if shape.experts and shape.experts.shared_intermediate_size else 0
    return 2 * shape.hidden_size + (2 * shape.head_dim if shape.qk_norm else 0) + gate


def _router(shape: ModelConfig) -> int:
    return shape.hidden_size * shape.experts.count if shape.experts else 0


def _stored(linear: _Linear, precision: Precision) -> int:
    inputs, outputs = linear.inputs, linear.outputs
    bias = 2 * outputs if linear.bias else 0
    match precision:
        case "fp8":
            return inputs * outputs + 2 * 4 + bias  # a float32 scale of weights and activations
        case "int8":
            inputs, outputs = _padded(inputs, 64), _padded(outputs, 64)
            return inputs * outputs + 2 * outputs + bias
        case "int4_awq":
            inputs, outputs = _padded(inputs, AWQ_GROUP), _padded(outputs, AWQ_GROUP)
            scales = inputs // AWQ_GROUP * outputs + inputs  # per group, and before the matrix
            return inputs * outputs // 2 + 2 * scales + bias
        case _:
            return 2 * inputs * outputs + bias


def _share(size: int, parts: int) -> int:
    return -(-size // parts)


def _padded(size: int, multiple: int) -> int:
    return _share(size, multiple) * multiple
