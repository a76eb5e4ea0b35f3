"""Target llmapi: TensorRT-LLM's PyTorch backend, which loads a checkpoint as it is.

| module | job |
|---|---|
| target | what is checked, and recorded in a manifest; the arguments of `LLM(...)` for an engine |
| version | which versions are run, and how each samples with seeds; pure |

Its memory is planned with that of target tensorrt (`tensorrt.memory_plan`), by its own constants.
"""
