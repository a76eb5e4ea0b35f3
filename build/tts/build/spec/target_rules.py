"""The targets, and what each of them allows in the other sections."""

from __future__ import annotations

from .engine import EngineSpec, Precision, Role
from .generator import GeneratorSpec
from .section import Target
from .tensorrt import TensorRTSpec
from .verifier import VerifierSpec

PRECISIONS: dict[Target, tuple[Precision, ...]] = {
    "openvino": ("fp32", "bf16", "int8"),
    "tensorrt": ("fp16", "bf16", "fp8", "int8", "int4_awq"),  # the last two: weights only
    "llmapi": ("fp16", "bf16"),  # as the checkpoint is loaded; quantised ones are not read yet
}
OPENVINO_BLOCK_SIZE = 32  # the only one of the CPU plug-in's paged attention


def check_target(
    target: Target,
    generator: GeneratorSpec,
    verifier: VerifierSpec,
    tensorrt: TensorRTSpec | None,
) -> None:
    """Raise ValueError if the target cannot do what the deployment asks of it."""
    _check_engine(target, "generator", generator)
    _check_engine(target, "verifier", verifier)
    if target != "openvino" and tensorrt is None:
        raise ValueError(f"target {target} needs the block tensorrt, with the gpu to build for")
    if target == "llmapi" and generator.guided_decoding:
        raise ValueError(
            "generator.guided_decoding is for targets openvino and tensorrt: LLM(...) matches "
            "grammars against its own tokenizer, and it is opened without one "
            "(skip_tokenizer_init)"
        )
    if target == "openvino" and tensorrt is not None:
        raise ValueError("the block tensorrt is for targets tensorrt and llmapi; remove it")
    if target == "tensorrt" and tensorrt and tensorrt.image:
        raise ValueError(
            "tensorrt.image applies to target llmapi only; engines are built for the versions "
            "of tensorrt.container"
        )
    if target == "llmapi" and tensorrt and tensorrt.launcher != "auto":
        raise ValueError(
            "tensorrt.launcher applies to target tensorrt only; models on LLM(...) start their "
            "own ranks"
        )


def _check_engine(target: Target, role: Role, engine: EngineSpec) -> None:
    allowed = PRECISIONS[target]
    if engine.precision not in allowed:
        raise ValueError(
            f"{role}.precision is {engine.precision!r}; target {target} allows {', '.join(allowed)}"
        )
    if target == "openvino":
        _check_openvino(role, engine)
    else:
        _check_tensorrt(role, engine)


def _check_tensorrt(role: Role, engine: EngineSpec) -> None:
    if engine.threads is not None:
        raise ValueError(f"{role}.threads applies to target openvino only; remove it")
    if engine.tensorrt and engine.tensorrt.kv_precision == "fp8" and engine.precision != "fp8":
        raise ValueError(
            f"{role}.tensorrt.kv_precision is 'fp8' with precision {engine.precision!r}; "
            "TensorRT-LLM then turns paged context attention off, and with it KV reuse: "
            "use precision fp8, or leave kv_precision at auto"
        )


def _check_openvino(role: Role, engine: EngineSpec) -> None:
    if engine.tensorrt is not None:
        raise ValueError(f"{role}.tensorrt is for targets tensorrt and llmapi; remove it")
    if engine.kv_cache.block_size != OPENVINO_BLOCK_SIZE:
        raise ValueError(
            f"{role}.kv_cache.block_size is {engine.kv_cache.block_size}; "
            f"target openvino allows {OPENVINO_BLOCK_SIZE}"
        )
    if engine.scheduling_policy != "guaranteed_no_evict":
        raise ValueError(
            f"{role}.scheduling_policy is {engine.scheduling_policy!r}; target openvino allows "
            "guaranteed_no_evict (preemption would make results depend on timing)"
        )
