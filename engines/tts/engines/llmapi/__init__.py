"""Models on TensorRT-LLM's `LLM(...)`, the PyTorch backend, with the tensors of the engine path.

    Triton ─> model ─> host ─> LLM.generate_async ─> output ─> Triton

They run in NVIDIA's container, where this toolkit is not installed: the model repository brings the
modules along (`MODULES`). They need numpy, TensorRT-LLM and nothing else.

| module | job |
|---|---|
| model | the Python model that Triton runs |
| host | requests on one `LLM`, from one thread with an event loop |
| output | one request: the arguments of its SamplingParams; its output as it grows |
"""

MODULES = (
    "build",
    "build.errors",
    "build.llmapi",
    "build.llmapi.version",
    "engines",
    "engines.cancellations",
    "engines.generate_request",
    "engines.guide_grammar",
    "engines.llmapi",
    "engines.llmapi.host",
    "engines.llmapi.model",
    "engines.llmapi.output",
    "engines.loading",
    "engines.responses",
    "engines.statistics",
    "engines.triton_model",
    "engines.wire",
)
"""Modules and packages of `tts` that `model` imports, itself included."""
