"""A model of an engine on a GPU: how long its steps take and what its cache holds. Pure.

No asyncio, no wall clock, no tokens sampled: callers say what a request will answer and at what
time something happens, and are told when the next thing will. docs/explanation/simulation.md has
the model.
"""

from tts.base.choices import Sharing
from tts.build.tensorrt.gpus import GPUS, GpuFacts
from tts.build.tensorrt.step_time import (
    Affine,
    Efficiency,
    ModelShape,
    Roofline,
    StepCost,
    StepLoad,
    StepTime,
)

from .engines import Gpus, SimulatedEngine, SimulatedRequest, StepTotals
from .kv_cache import PagedCache

__all__ = [
    "GPUS",
    "Affine",
    "Efficiency",
    "GpuFacts",
    "Gpus",
    "ModelShape",
    "PagedCache",
    "Roofline",
    "Sharing",
    "SimulatedEngine",
    "SimulatedRequest",
    "StepCost",
    "StepLoad",
    "StepTime",
    "StepTotals",
]
