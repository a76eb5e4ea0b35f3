"""Serving a deployment: Triton with compiled engines, and engines that are servers themselves.

| package | job |
|---|---|
| command | the command line of a server, here or in a container, and what it runs in |
| repository | the model repository, rendered from templates; compose and Kubernetes manifests |
| contract | what TensorRT-LLM's Triton backend expects, as data |
| server | processes: start, find, probe, watch, stop; why a start failed |

`command` stands below `repository` and `server`, which both use it; `server` uses `repository`,
which reads `contract`.
"""
