"""Names among which options of commands choose: no command that only shows them waits for more."""

from typing import Literal

ServerKind = Literal["triton", "embedded"]
"""What runs the engines of a deployment: Triton, or the program that uses them."""
StartedTarget = Literal["vllm", "sglang", "llama.cpp", "trtllm-serve"]
"""An engine that is a server of its own, which is planned, started and supervised."""
Target = Literal["openvino", "tensorrt", "openai", StartedTarget]
"""The target that engines are built for, or the server that is started; openai: servers that run
already."""
AnswerKind = Literal["text", "gsm8k", "number", "decimal-comma", "letter", "index"]
"""How the answers of a dataset are written; the last two are those of multiple choice."""
ScheduleName = Literal["lockstep", "batched", "alternating", "decoupled"]
"""The order in which a tree's work is sent."""
SpeculationName = Literal["off", "auto", "always"]
"""When empty slots are filled with steps that may not be needed."""
Sharing = Literal["time-sliced", "overlapped"]
"""How two simulated engines share one GPU (tts.engines.simulated.gpus)."""
