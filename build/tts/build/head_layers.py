"""A verifier's own head as matrices that give two logits: right, then wrong."""

from __future__ import annotations

import numpy as np

from .checkpoint import Checkpoint
from .weights import Array


def head_layers(checkpoint: Checkpoint) -> list[tuple[Array, Array]]:
    """Weight [outputs, inputs] and bias [outputs] of each layer; there is a ReLU between layers.

    The last layer's outputs are the logits of "right" and "wrong". Two classes are turned round,
    as class 1 is the positive one; a value v becomes the pair (v, 0), whose softmax is v's sigmoid.
    """
    head = checkpoint.config.head
    assert head is not None
    tensor = checkpoint.weights.numbers
    layers = [(tensor(f"{name}.weight"), tensor(f"{name}.bias")) for name in head.layers]
    weight, bias = layers[-1]
    if head.kind == "value":
        layers[-1] = np.pad(weight, ((0, 1), (0, 0))), np.pad(bias, (0, 1))
    else:
        layers[-1] = weight[::-1], bias[::-1]
    return layers
