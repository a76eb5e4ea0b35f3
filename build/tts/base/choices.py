"""Names among which options of commands choose: nothing that only needs them waits for more."""

from typing import Literal, get_args

Role = Literal["generator", "verifier"]
"""Which of the two models."""
ServerKind = Literal["triton", "embedded"]
"""What runs the engines of a deployment: Triton, or the program that uses them."""
StartedTarget = Literal["vllm", "sglang", "llama.cpp", "trtllm-serve"]
"""An engine that is a server of its own, which is planned, started and supervised."""
Target = Literal["openvino", "tensorrt", "openai", StartedTarget]
"""The target that engines are built for, or the server that is started; openai: servers that run
already."""
Precision = Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4_awq"]
PRECISIONS: dict[Target, tuple[Precision, ...]] = {
    "openvino": ("fp32", "bf16", "int8"),
    "tensorrt": ("fp16", "bf16", "fp8", "int8", "int4_awq"),  # the last two: weights only
    "openai": (),  # whoever started the server has chosen one
    "vllm": ("fp32", "fp16", "bf16", "fp8"),
    "sglang": ("fp32", "fp16", "bf16", "fp8"),
    "llama.cpp": (),  # as the file has them
    "trtllm-serve": (),  # as the checkpoint has them
}
STARTED: tuple[Target, ...] = get_args(StartedTarget)
"""Targets whose engines are started, not compiled."""
AnswerKind = Literal["text", "gsm8k", "number", "decimal-comma", "letter", "index"]
"""How the answers of a dataset are written; the last two are those of multiple choice."""
ScheduleName = Literal["lockstep", "batched", "alternating", "decoupled"]
"""The order in which a tree's work is sent."""
SpeculationName = Literal["off", "auto", "always"]
"""When empty slots are filled with steps that may not be needed."""
Sharing = Literal["time-sliced", "overlapped"]
"""How two simulated engines share one GPU (tts.engines.simulated.gpus)."""
