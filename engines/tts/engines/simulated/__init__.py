"""A model of an engine on a GPU: how long its steps take and what its cache holds. Pure.

No asyncio, no wall clock, no tokens sampled: callers say what a request will answer and at what
time something happens, and are told when the next thing will. docs/explanation/simulation.md has
the model.
"""

from tts.build.tensorrt.gpus import GPUS, GpuFacts

from .batching import Engine, Request, Totals
from .gpus import Gpus, Sharing
from .kv_cache import PagedCache
from .step_time import (
    Affine,
    Cost,
    Efficiency,
    Load,
    ModelShape,
    Roofline,
    StepTime,
)

__all__ = [
    "GPUS",
    "Affine",
    "Cost",
    "Efficiency",
    "Engine",
    "GpuFacts",
    "Gpus",
    "Load",
    "ModelShape",
    "PagedCache",
    "Request",
    "Roofline",
    "Sharing",
    "StepTime",
    "Totals",
]
