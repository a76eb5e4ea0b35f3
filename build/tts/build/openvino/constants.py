"""Checkpoint tensors as OpenVINO constants, in the precision that the engine stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from ..weights import Array

if TYPE_CHECKING:
    from openvino import Node

    from ..spec import Precision

_ROWS_AT_ONCE = 4096  # bounds the temporaries of quantisation, in rows


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
