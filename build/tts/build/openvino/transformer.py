"""The graph of a decoder-only transformer, built op by op from a checkpoint, and its file.

It is the one that OpenVINO's own tools export, so that the CPU plug-in fuses it and GenAI's
continuous batching can turn its attention into paged attention:

    inputs   input_ids, attention_mask, position_ids  i64 [batch, tokens];  beam_idx  i32 [batch]
    state    key and value of every layer             f32 [batch, kv_heads, past tokens, head_dim]
    output   logits                                   f32 [batch, tokens, output vocabulary]

An engine that writes and scores has one input more, `sampled_tokens_indices` i64 [sampled]: the
rows of the batch that logits are computed for. GenAI adds it by itself where the graph ends in the
matrix of the language head, and gives it to any graph that has it.

The attention mask reaches nothing but the attention ops: paged attention removes them together.
Weights are constants of the graph, in the precision that the engine stores.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tts.base.choices import Precision
from tts.base.errors import CheckpointError

from ..checkpoint import EMBEDDING, FINAL_NORM, LM_HEAD, Checkpoint, layer_prefix
from ..model_config import ModelConfig
from ..weights import Array

if TYPE_CHECKING:
    from openvino import Model, Node


_ROWS_AT_ONCE = 4096  # bounds the temporaries of quantisation, in rows
_MASKED = -65504.0  # finite, also in bf16: a row without any key must not become NaN
_CLOSED = -1e30  # of a column: no temperature raises it, and it is finite
_LEAST = 1e-37  # the logarithm of a sum of probabilities stays finite
SCORE_LOGITS = 2
MODEL_FILE = "openvino_model.xml"
WEIGHTS_FILE = "openvino_model.bin"
EXPORTER_VERSIONS: Mapping[Precision, int] = {"fp32": 1, "bf16": 2, "int8": 1}
"""Raised where the exported graph changes, so that engines made before are built again."""


def constant(array: Array) -> Node:
    """A small tensor (norm, bias, table) as fp32."""
    from openvino import op

    return op.Constant(np.ascontiguousarray(array, dtype=np.float32), shared_memory=True)


def matrix(array: Array, precision: Precision) -> Node:
    """A weight matrix [rows, columns], decompressed to fp32 by the graph itself.

    fp32 is shared with the mapped checkpoint where that is fp32 already. bf16 and int8 stay
    compressed in the engine: the plug-in recognises Convert, and Convert with Multiply.
    """
    from openvino import opset13 as ops

    if precision == "fp32":
        return constant(array)
    if precision == "bf16":
        return ops.convert(_bfloat16(array), np.float32)
    rows, scales = quantise_rows(array)
    from openvino import op

    return ops.multiply(
        ops.convert(op.Constant(rows, shared_memory=True), np.float32),
        op.Constant(scales, shared_memory=True),
    )


def label_precision(precision: Precision) -> Precision:
    """How the label rows of a verifier's output matrix are stored: too few to quantise."""
    return "fp32" if precision == "int8" else precision


def stored_values(array: Array, precision: Precision) -> Array:
    """The values of a tensor as `matrix` stores them, in fp32."""
    if precision == "fp32":
        return np.asarray(array, np.float32)
    if precision == "bf16":
        return np.asarray(array, ml_dtypes.bfloat16).astype(np.float32)
    values, scales = quantise_rows(array)
    return np.asarray(values * scales)


def quantise_rows(array: Array) -> tuple[Array, Array]:
    """Symmetric int8 per row: values int8 [rows, columns] and scales fp32 [rows, 1]."""
    values = np.empty(array.shape, np.int8)
    scales = np.empty((len(array), 1), np.float32)
    for start in range(0, len(array), _ROWS_AT_ONCE):
        block = slice(start, start + _ROWS_AT_ONCE)
        part = array[block].astype(np.float32)
        scale = np.abs(part).max(axis=1, keepdims=True) / 127
        scale[scale == 0] = 1
        scales[block] = scale
        values[block] = np.rint(part / scale)
    return values, scales


def _bfloat16(array: Array) -> Node:
    from openvino import Shape, Tensor, Type, op

    bits: np.ndarray[Any, Any] = np.ascontiguousarray(array, dtype=ml_dtypes.bfloat16)
    tensor = Tensor(bits.view(np.uint16).ravel(), Shape(list(array.shape)), Type.bf16)
    # copied: a constant that shares a Tensor does not keep the array behind it alive
    return op.Constant(tensor, shared_memory=False)


@dataclass(frozen=True)
class ScoreColumns:
    """The two logits that a score is the softmax of: logsumexp(z + log w), logsumexp(z + log(1-w)).

    z are the label rows' logits and w their weights, so the first one's share is sum(w p), p being
    the softmax over the labels.
    """

    token_ids: tuple[int, ...]
    """The rows of the language head."""
    weights: tuple[float, ...]
    beside_vocabulary: bool = False
    """Whether the engine writes as well: then the two columns stand behind those of its V tokens.

    They are open only after an id of V or more, which stands for itself minus V and closes all
    others; elsewhere the two are closed.
    """

    @property
    def are_rows(self) -> bool:
        """Whether the label rows' own logits are these two."""
        return self.weights == (1.0, 0.0)


def rotary_frequencies(config: ModelConfig) -> Array:
    """Angle per position of each rotated pair, fp32 [head_dim / 2]."""
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    frequencies = 1.0 / np.power(np.float32(config.rope_theta), exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    # llama3: long wavelengths are stretched by `factor`, short ones kept, the rest interpolated
    turns = scaling.original_max_position_embeddings * frequencies / (2 * np.pi)
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = np.clip(blend, 0.0, 1.0)
    scaled = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    return scaled.astype(np.float32)


class Transformer:
    """The graph under construction; one method per part of the transformer.

    With `score` the output is the two logits of a score, alone or behind those of the vocabulary;
    the embedding keeps the whole vocabulary. Of a checkpoint with a head of its own it is the
    head's two columns (see head_layers). Weights are mapped from the checkpoint, so it must stay in
    place until the model is saved.
    """

    def __init__(
        self, checkpoint: Checkpoint, precision: Precision, score: ScoreColumns | None = None
    ) -> None:
        """Nothing is read yet."""
        from openvino import opset13

        self.ops = opset13
        self.checkpoint = checkpoint
        self.config = checkpoint.config
        self.precision = precision
        self.score = score
        self.sinks: list[Node] = []

    def model(self) -> Model:
        """The whole graph."""
        from openvino import Model

        ops, config = self.ops, self.config
        inputs = {
            "input_ids": ops.parameter([-1, -1], np.int64),
            "attention_mask": ops.parameter([-1, -1], np.int64),
            "position_ids": ops.parameter([-1, -1], np.int64),
            "beam_idx": ops.parameter([-1], np.int32),
        }
        ids = inputs["input_ids"]
        if self.score and self.score.beside_vocabulary:
            ids = self._marked(ids, inputs)
        for name, node in inputs.items():
            node.set_friendly_name(name)
            node.output(0).get_tensor().set_names({name})
        self.beam_idx = inputs["beam_idx"]
        self.batch = ops.gather(ops.shape_of(ids), self._ints(0), self._int(0))
        self.rotary = self._rotary(inputs["position_ids"])
        self.mask = self._mask(ids, inputs["attention_mask"])

        self.table = matrix(self._tensor(EMBEDDING), self.precision)
        hidden = ops.gather(self.table, ids, self._int(0))
        for index in range(config.num_layers):
            hidden = self._layer(layer_prefix(index), hidden)
        logits = self._logits(self._norm(hidden, FINAL_NORM))
        result = ops.result(logits)
        result.set_friendly_name("logits")
        logits.output(0).get_tensor().set_names({"logits"})
        return Model([result], self.sinks, list(inputs.values()), self.checkpoint.path.name)

    def _marked(self, ids: Node, inputs: dict[str, Node]) -> Node:
        """The ids without marks; keeps the rows that are sampled, and which of them had marks."""
        ops, size = self.ops, self._int(self.config.vocab_size)
        self.sampled = inputs["sampled_tokens_indices"] = ops.parameter([-1], np.int64)
        marked = ops.greater_equal(ids, size)
        rows = ops.gather(marked, self.sampled, self._int(0))
        self.is_scored = ops.unsqueeze(rows, self._ints(-1))
        return ops.select(marked, ops.subtract(ids, size), ids)

    def _logits(self, hidden: Node) -> Node:
        """The engine's output, from the last layer's output [batch, tokens, hidden]."""
        if self.config.head:
            return self._own_head(hidden)
        ops, score = self.ops, self.score
        if not (score and score.beside_vocabulary):
            logits = ops.matmul(hidden, self._head(), False, True)
            return self._graded(logits, score) if score else logits
        hidden = ops.gather(hidden, self.sampled, self._int(0))
        logits = ops.matmul(hidden, self._head(), False, True)
        graded = self._graded(
            ops.gather(logits, self._ints(*score.token_ids), self._int(-1)), score
        )
        closed = self._float(_CLOSED)
        text_logits = ops.select(self.is_scored, closed, logits)
        return ops.concat([text_logits, ops.select(self.is_scored, graded, closed)], -1)

    def _graded(self, logits: Node, score: ScoreColumns) -> Node:
        """The two logits of a score, of those of the labels [..., labels]."""
        if score.are_rows:
            return logits
        ops = self.ops
        largest = ops.reduce_max(logits, self._ints(-1), True)
        shares = ops.exp(ops.subtract(logits, largest))
        good = np.array(score.weights, np.float32)
        parts = ops.multiply(
            ops.unsqueeze(shares, self._ints(-2)), constant(np.stack([good, 1 - good]))
        )
        sums = ops.maximum(ops.reduce_sum(parts, self._ints(-1), False), self._float(_LEAST))
        return ops.add(largest, ops.log(sums))

    def _layer(self, prefix: str, hidden: Node) -> Node:
        ops = self.ops
        normed = self._norm(hidden, f"{prefix}input_layernorm.weight")
        hidden = ops.add(hidden, self._attention(f"{prefix}self_attn.", normed))
        normed = self._norm(hidden, f"{prefix}post_attention_layernorm.weight")
        return ops.add(hidden, self._mlp(f"{prefix}mlp.", normed))

    def _attention(self, prefix: str, hidden: Node) -> Node:
        ops, config = self.ops, self.config
        query = self._heads(f"{prefix}q_proj", hidden, config.num_heads)
        key = self._heads(f"{prefix}k_proj", hidden, config.num_kv_heads)
        value = self._heads(f"{prefix}v_proj", hidden, config.num_kv_heads)
        if config.qk_norm:
            query = self._norm(query, f"{prefix}q_norm.weight")
            key = self._norm(key, f"{prefix}k_norm.weight")
        query, key, value = (
            ops.transpose(node, self._ints(0, 2, 1, 3)) for node in (query, key, value)
        )
        query, key = self._rotate(query), self._rotate(key)
        size = config.num_kv_heads, config.head_dim
        key = self._repeat(self._remember(f"{prefix}key", key, *size))
        value = self._repeat(self._remember(f"{prefix}value", value, *size))
        mixed = self._attend(query, key, value)
        return self._linear(f"{prefix}o_proj", mixed)

    def _attend(self, query: Node, key: Node, value: Node) -> Node:
        """Attention to all tokens so far: [batch, heads, tokens, dim] -> [batch, tokens, all]."""
        ops = self.ops
        mixed = ops.scaled_dot_product_attention(query, key, value, self.mask, causal=False)
        return ops.reshape(ops.transpose(mixed, self._ints(0, 2, 1, 3)), self._ints(0, 0, -1), True)

    def _mlp(self, prefix: str, hidden: Node) -> Node:
        gate = self.ops.swish(self._linear(f"{prefix}gate_proj", hidden))
        up = self._linear(f"{prefix}up_proj", hidden)
        return self._linear(f"{prefix}down_proj", self.ops.multiply(gate, up))

    def _heads(self, name: str, hidden: Node, heads: int) -> Node:
        """[batch, tokens, hidden] -> [batch, tokens, heads, head_dim]."""
        shape = self._ints(0, 0, heads, self.config.head_dim)
        return self.ops.reshape(self._linear(name, hidden), shape, True)

    def _linear(self, name: str, value: Node) -> Node:
        weight = matrix(self._tensor(f"{name}.weight"), self.precision)
        product = self.ops.matmul(value, weight, False, True)
        if not self._has_bias(name):
            return product
        return self.ops.add(product, constant(self._tensor(f"{name}.bias")))

    def _has_bias(self, name: str) -> bool:
        config = self.config
        if name.endswith("o_proj"):
            return config.output_bias
        return config.mlp_bias if ".mlp." in name else config.qkv_bias

    def _norm(self, value: Node, name: str) -> Node:
        """RMS norm over the last axis."""
        ops = self.ops
        mean = ops.reduce_mean(ops.power(value, self._float(2.0)), self._ints(-1), True)
        root = ops.sqrt(ops.add(mean, self._float(self.config.rms_norm_eps)))
        scaled = ops.multiply(value, ops.divide(self._float(1.0), root))
        return ops.multiply(constant(self._tensor(name)), scaled)

    def _rotary(self, positions: Node) -> tuple[Node, Node]:
        """Cosine and sine [batch, 1, tokens, head_dim] of every position."""
        ops = self.ops
        column = ops.convert(ops.unsqueeze(positions, self._ints(-1)), np.float32)
        angles = ops.multiply(column, constant(rotary_frequencies(self.config)[None, None]))
        angles = ops.unsqueeze(ops.concat([angles, angles], -1), self._ints(1))
        return ops.cos(angles), ops.sin(angles)

    def _rotate(self, value: Node) -> Node:
        ops, half = self.ops, self.config.head_dim // 2
        cosine, sine = self.rotary
        step, axis = self._ints(1), self._ints(-1)
        first = ops.slice(value, self._ints(0), self._ints(half), step, axis)
        second = ops.slice(value, self._ints(half), self._ints(2 * half), step, axis)
        turned = ops.concat([ops.multiply(second, self._float(-1.0)), first], -1)
        return ops.add(ops.multiply(value, cosine), ops.multiply(turned, sine))

    def _mask(self, ids: Node, attention_mask: Node) -> Node:
        """The mask added to the attention scores, f32 [batch, 1, tokens, all tokens]."""
        ops = self.ops
        new = ops.gather(ops.shape_of(ids), self._int(1), self._int(0))
        total = ops.gather(ops.shape_of(attention_mask), self._int(1), self._int(0))
        slots = ops.range(self._int(0), total, self._int(1), "i64")
        rows = ops.range(ops.subtract(total, new), total, self._int(1), "i64")
        causal = ops.less_equal(slots, ops.unsqueeze(rows, self._ints(1)))
        present = ops.convert(ops.unsqueeze(attention_mask, self._ints(1, 2)), bool)
        visible = ops.logical_and(present, causal)
        return ops.select(visible, self._float(0.0), self._float(_MASKED))

    def _remember(self, name: str, new: Node, heads: int, dim: int) -> Node:
        """Append [batch, heads, tokens, dim] to the state `name` and return the whole of it."""
        ops = self.ops
        shape = ops.concat([self.batch, self._ints(heads, 0, dim)], 0)
        empty = ops.broadcast(self._float(0.0), shape)
        past = ops.read_value(empty, name, np.float32, [-1, heads, -1, dim])
        whole = ops.concat([ops.gather(past, self.beam_idx, self._int(0)), new], 2)
        self.sinks.append(ops.assign(whole, name))
        return whole

    def _repeat(self, value: Node) -> Node:
        """Give each query head its key/value head: [b, kv_heads, t, d] -> [b, heads, t, d]."""
        ops, config = self.ops, self.config
        groups = config.num_heads // config.num_kv_heads
        if groups == 1:
            return value
        shape = ops.shape_of(value)
        dims = [ops.gather(shape, self._ints(axis), self._int(0)) for axis in range(4)]
        target = ops.concat([dims[0], dims[1], self._ints(groups), dims[2], dims[3]], 0)
        wide = ops.broadcast(ops.unsqueeze(value, self._ints(2)), target, "BIDIRECTIONAL")
        merged = ops.concat([dims[0], self._ints(config.num_heads), dims[2], dims[3]], 0)
        return ops.reshape(wide, merged, False)

    def _own_head(self, hidden: Node) -> Node:
        """The head's layers, ReLU between them; kept in the precision of label rows."""
        precision = label_precision(self.precision)
        for index, (weight, bias) in enumerate(self.checkpoint.head_layers()):
            value = self.ops.relu(hidden) if index else hidden
            product = self.ops.matmul(value, matrix(weight, precision), False, True)
            hidden = self.ops.add(product, constant(bias))
        return hidden

    def _head(self) -> Node:
        """The output matrix: the label rows, the embedding again when tied, or lm_head."""
        tied = self.config.tie_word_embeddings
        name = EMBEDDING if tied else LM_HEAD
        both = tied and LM_HEAD in self.checkpoint.weights
        if both and not np.array_equal(self._tensor(EMBEDDING), self._tensor(LM_HEAD)):
            raise CheckpointError(
                f"{self.checkpoint.path}: config.json says tie_word_embeddings is true, but "
                f"{LM_HEAD} differs from {EMBEDDING}.",
                hint="Set tie_word_embeddings to false, or save the model again.",
            )
        if self.score and not self.score.beside_vocabulary:
            rows = self.checkpoint.weights.numbers(name, self.score.token_ids)
            return matrix(rows, label_precision(self.precision))
        return self.table if tied else matrix(self._tensor(name), self.precision)

    def _tensor(self, name: str) -> Array:
        return self.checkpoint.weights.numbers(name)

    def _int(self, value: int) -> Node:
        return self.ops.constant(np.array(value, np.int64))

    def _ints(self, *values: int) -> Node:
        return self.ops.constant(np.array(values, np.int64))

    def _float(self, value: float) -> Node:
        return self.ops.constant(np.array(value, np.float32))


def save_model(model: Model, folder: Path) -> None:
    """Write openvino_model.xml and .bin, and read them back; raises OSError when that fails."""
    import openvino

    try:
        openvino.save_model(model, folder / MODEL_FILE, compress_to_fp16=False)
        _keep_compressed(folder / MODEL_FILE)
        # A full disk can leave a short file without a word: reading checks every offset.
        openvino.Core().read_model(folder / MODEL_FILE)
    except RuntimeError as error:
        raise OSError(f"OpenVINO could not write the model: {error}") from error


def _keep_compressed(file: Path) -> None:
    """Mark the Convert of every bf16 weight as decompression, in the saved graph.

    An unmarked Convert of a constant is computed when the model is compiled: a copy of all weights
    in fp32, twice the file, which stays beside the copies that the CPU's kernels make. Python can
    set no attribute that is saved, so the mark is written where the plug-in reads it.
    """
    tree = ElementTree.parse(file)
    converts = tree.iterfind("layers/layer[@type='Convert']")
    weights = [node for node in converts if node.find("input/port[@precision='BF16']") is not None]
    for node in weights:
        mark = ElementTree.Element("rt_info")
        ElementTree.SubElement(mark, "attribute", name="decompression", version="0")
        node.insert(1, mark)  # the schema's order: data, rt_info, input, output
    if weights:
        tree.write(file, encoding="utf-8", xml_declaration=True)
