"""The graph of a likelihood verifier: how likely a language model finds each step of a text.

At a token of a step the output is the mean of the log-probabilities of the step's tokens so far,
which needs what an engine with a paged KV cache does not keep: the output at the token before (for
the log-probability of this one), and the log-probabilities of the step's earlier tokens. Those may
be in the cache, computed by another request, or in an earlier chunk of the prompt. So both go into
the cache themselves, as keys and values of two layers of attention behind the last:

- *previous*: the value is the last layer's output, the key the token's position, the query the
  position before. The result is the output of the token before: one key matches.
- *mean*: the value is the token's log-probability, key and query are the code of its step (see
  verifiers/likelihood.py). All tokens of the step match equally, so the result is their mean.

A number is a key as its bits, -1 or 1. Two that differ in a bit have a smaller product than two
that are equal; sharpened, the softmax of the others is exactly 0 in fp32. So a score depends on
its own path only, whatever is cached, batched or cut into chunks.

The output is (m, log(1 - exp(m))): the softmax of the pair is exp(m), the score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .transformer import Transformer

if TYPE_CHECKING:
    from openvino import Node

    from ..model_config import ModelConfig

_BITS = 20
"""Positions and codes are below 2**20."""
_SHARPNESS = 100.0
"""A key with another bit gets at most exp(-2 x 100) of the weight of one that matches."""
_LARGEST = -1e-6
"""The largest mean that differs from 0, so that log(1 - exp(m)) is finite."""


def likelihood_columns(config: ModelConfig) -> int:
    """Columns of keys, and as many of values, that the two layers keep of each token."""
    return (_heads(config) + 1) * _width(config)


def _width(config: ModelConfig) -> int:
    """Columns of a head: those of the model's own, which the engine's kernels are made for."""
    return max(config.head_dim, _BITS)


def _heads(config: ModelConfig) -> int:
    """Heads that hold the last layer's output."""
    return -(-config.hidden_size // _width(config))


class Likelihood(Transformer):
    """A causal language model that scores steps; its input ids carry the steps' codes."""

    def _tokens(self, ids: Node) -> Node:
        rows = self._int(self.config.vocab_size)
        self.codes = self.ops.divide(ids, rows)
        self.tokens = self.ops.floor_mod(ids, rows)
        return self.tokens

    def _logits(self, hidden: Node) -> Node:
        ops, config = self.ops, self.config
        before, heads = ops.subtract(self.positions, self._int(1)), _heads(config)
        previous = self._look_up("previous", before, self.positions, hidden, heads)
        previous = self._columns(previous, config.hidden_size)
        log_probs = ops.log_softmax(ops.matmul(previous, self._head(), False, True), -1)
        chosen = ops.gather_elements(log_probs, ops.unsqueeze(self.tokens, self._ints(-1)), -1)
        counted = ops.bitwise_or(self.codes, self._int(1))
        mean = self._look_up("mean", counted, self.codes, chosen, 1)
        mean = ops.minimum(self._columns(mean, 1), self._float(_LARGEST))
        other = ops.log(ops.subtract(self._float(1.0), ops.exp(mean)))
        return ops.concat([mean, other], -1)

    def _look_up(self, name: str, wanted: Node, numbers: Node, values: Node, heads: int) -> Node:
        """The mean of `values` where `numbers` have the number that is wanted, up to this token.

        Numbers are [batch, tokens], values [batch, tokens, n]; gives [batch, tokens, heads x width]
        with zeros behind the first n columns.
        """
        ops, width = self.ops, _width(self.config)
        columns = heads * width
        missing = self._ints(0, 0, columns - values.get_output_partial_shape(0)[2].get_length())
        values = ops.pad(values, self._ints(0, 0, 0), missing, "constant", self._float(0.0))
        values = ops.reshape(values, self._ints(0, 0, heads, width), True)
        values = ops.transpose(values, self._ints(0, 2, 1, 3))
        sharp = self._float(_SHARPNESS * width**0.5)  # attention divides by the root
        query = ops.multiply(self._bits(wanted, heads, width), sharp)
        key = self._remember(f"{name}.key", self._bits(numbers, heads, width), heads, width)
        value = self._remember(f"{name}.value", values, heads, width)
        return self._attend(query, key, value)

    def _bits(self, numbers: Node, heads: int, width: int) -> Node:
        """[batch, tokens] -> the bits of each number as -1 and 1, [batch, heads, tokens, width]."""
        ops = self.ops
        powers = 2 ** (np.arange(width) % _BITS)  # again from the first where there is room
        bits = ops.divide(ops.unsqueeze(numbers, self._ints(1, 3)), self._ints(*powers))
        bits = ops.convert(ops.floor_mod(bits, self._int(2)), np.float32)
        bits = ops.subtract(ops.multiply(bits, self._float(2.0)), self._float(1.0))
        return ops.concat([bits] * heads, 1)

    def _columns(self, values: Node, count: int) -> Node:
        """The first columns of [batch, tokens, n]."""
        ends, one, last = self._ints(count), self._ints(1), self._ints(-1)
        return self.ops.slice(values, self._ints(0), ends, one, last)
