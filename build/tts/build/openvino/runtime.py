"""Settings of the OpenVINO CPU plug-in, and the CPU features that they need."""

from __future__ import annotations

import importlib.metadata
import sys
from functools import cache
from pathlib import Path

from tts.base import extras
from tts.base.choices import PRECISIONS, Precision, Role
from tts.base.errors import ConfigError

BF16_FLAG = "avx512_bf16"
"""The CPU flag without which OpenVINO's paged attention computes in f32 only.

OpenVINO's OPTIMIZATION_CAPABILITIES do not tell: by its sources (hasHardwareSupport, and
PagedAttention::getRuntimePrecision) they list BF16 for AVX-512 without this flag, too.
"""
ACTIVATION_GROUP = 64
"""Activations of a token that share a scale, beside int8 weights, where the CPU has VNNI.

Multiplied as integers, eight streams of SmolLM2-135M take 0.45 of the processor time, as does a
prompt. The divergence from fp32 grows from 0.004 to 0.008 a token (bf16: 0.0006, groups of 128:
0.012), the perplexity by 0.4%; groups of 32 regain two fifths of that, and prompts take 1.16 times
as long.
"""


@cache
def cpu_flags() -> frozenset[str]:
    """The instruction sets of this machine's CPU, as Linux names them; empty elsewhere."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def openvino_version() -> str:
    """The version of OpenVINO that is installed; raises ConfigError if none is."""
    try:
        return importlib.metadata.version("openvino")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            f"Target openvino needs OpenVINO, which is not installed for {sys.executable}.",
            hint=how_to_install(),
        ) from None


def how_to_install() -> str:
    """A hint for a machine without OpenVINO, or without a part of it."""
    return f"Install OpenVINO: {extras.how_to_install('cpu')}"


def require_precision(role: Role, precision: Precision) -> None:
    """Raise ConfigError where this machine's CPU cannot serve an engine of this precision."""
    if precision == "bf16" and BF16_FLAG not in cpu_flags():
        raise ConfigError(
            f"{role}.precision is 'bf16', and this machine's CPU has no AVX512-BF16 "
            f"({BF16_FLAG}): OpenVINO's paged attention cannot run in bf16 without it.",
            hint=f"Set {role}.precision to fp32 or int8 and build the engine, or use a machine "
            "that has it.",
        )


def plugin_properties(precision: Precision, threads: int = 1) -> dict[str, str | int]:
    """Properties for `compile_model` or a GenAI pipeline; `threads` are CPU threads.

    The plug-in's own defaults are bf16 arithmetic over an 8-bit KV cache: both are always set,
    because one without the other is refused or loses precision. It would also pin each engine's
    threads to the machine's first cores: two processes would share one and leave the other idle.
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
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": ACTIVATION_GROUP if precision == "int8" else 0,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": "NO",
        "NUM_STREAMS": 1,
    }
