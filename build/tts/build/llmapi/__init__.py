"""Target llmapi: TensorRT-LLM's PyTorch backend, which loads a checkpoint as it is.

| module | job |
|---|---|
| target | the target's interface to the build: what is checked, and recorded in a manifest |
| arguments | the arguments of `LLM(...)` for an engine of a deployment; pure |
| contract | facts on TensorRT-LLM's Python API (contract.json), and the check of arguments |
| version | which versions are served, and how each samples with seeds; pure |

Its memory is planned with that of target tensorrt (`tensorrt.memory_plan`), by its own constants.
"""
