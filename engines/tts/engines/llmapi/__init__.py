"""An engine on TensorRT-LLM's `LLM(...)`, the PyTorch backend, in an engine's process.

    engine_process ─> process ─> host ─> LLM.generate_async ─> output ─> process ─> engine_client

It runs inside NVIDIA's TensorRT-LLM image, where this toolkit is installed beside it.

| module | job |
|---|---|
| process | the engine's process: `LLM` opened on the GPUs that it is given, and its connection |
| host | requests on one `LLM` |
| output | one request: the arguments of its SamplingParams; its output as it grows |
"""
