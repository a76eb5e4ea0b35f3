"""Target tensorrt: engines for NVIDIA GPUs, planned from shapes and built by TensorRT-LLM.

Memory plan; pure:

| module | job |
|---|---|
| gpus | memory and speed of each kind of GPU; which of a machine are used |
| placements | every way to place both engines on so many GPUs |
| engine_memory | bytes of weights, activations, logits and KV cache, rank by rank |
| step_time | seconds of an engine's step: for the memory plan and the simulation |
| kv_split | how the two engines share what is left for KV caches |
| memory_plan | all of it for a deployment: what is on which GPU, both pools |

Build:

| module | job |
|---|---|
| target | the target's interface to the build: settings, plan, the steps in order |
| contract | facts on TensorRT-LLM 1.2.1 and its container (contract/*.json) |
| commands | the commands of the three steps, and what they refuse: check, convert, compile; pure |
| in_container | the script that the first two run inside NVIDIA's container |
| docker | `docker run` of the container: for a step, for a server |
| toolchain | running steps, by `docker run` or inside the container: machine, log, interruption |
| engine_files | reading a built engine back |
"""
