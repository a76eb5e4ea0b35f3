"""How the OpenVINO CPU plug-in must be set up to compute an engine as it was verified."""

from __future__ import annotations

from .errors import ConfigError
from .spec import PRECISIONS, Precision

CACHE_BYTES: dict[str, int] = {"fp32": 4, "bf16": 2, "int8": 4}
"""Bytes per KV-cache element, by the precision of an engine."""


def plugin_properties(precision: Precision, threads: int = 1) -> dict[str, str | int]:
    """Properties for `compile_model` or a GenAI pipeline; `threads` are CPU threads.

    The plug-in's own defaults are bf16 arithmetic over an 8-bit KV cache: both are always set,
    because one without the other is refused or loses precision. With int8 weights the plug-in would
    quantise the activations as well, unless the group size of that is 0.
    """
    if precision not in PRECISIONS["openvino"]:
        raise ConfigError(
            f"Precision {precision!r} is not one of target openvino: "
            f"{', '.join(PRECISIONS['openvino'])}."
        )
    compute = "bf16" if precision == "bf16" else "f32"
    return {
        "INFERENCE_PRECISION_HINT": compute,
        "KV_CACHE_PRECISION": compute,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
    }
