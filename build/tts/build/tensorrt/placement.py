"""Where the ranks of both engines run, and which of TensorRT-LLM's two ways of serving that takes.

*Leader mode*: the server is the only rank of every engine. *Orchestrator mode*: the server spawns a
process for each rank, on the GPUs that gpu_device_ids names.
"""

from __future__ import annotations

from ..spec import Deployment

SERVER_GPU = 0
"""The GPU on which the server itself has a CUDA context in orchestrator mode."""


def gpus_of(deployment: Deployment) -> list[int]:
    """Every GPU that a deployment places an engine on, in order."""
    engines = deployment.engines().values()
    return sorted({gpu for spec in engines for gpus in spec.placement.replicas for gpu in gpus})


def is_orchestrated(deployment: Deployment) -> bool:
    """Whether the server spawns the ranks: everywhere but with all engines on GPU 0 alone.

    Leader mode places its rank on the first GPU that the server sees. Models of target llmapi place
    their ranks themselves.
    """
    return deployment.target == "tensorrt" and gpus_of(deployment) != [0]
