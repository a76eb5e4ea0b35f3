"""The usual pair of published models on GPUs that are not at hand; the shapes of any deployment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tts.build.inputs import engine_shape
from tts.build.model_config import shape_of
from tts.build.spec import Deployment, EngineSpec, Role, TensorRTEngine
from tts.build.spec import Gpu as GpuName
from tts.build.tensorrt.memory_plan import CHARACTERS_PER_TOKEN
from tts.engines.simulated import GPUS, ModelShape

from .workload import DELIMITER, FILLING

SIMULATED = "simulated"
"""The name of a pair that comes from no deployment file."""
GENERATOR = "Llama-3.2-1B-Instruct"
VERIFIER = "Llama3.1-8B-PRM-Deepseek-Data"
WRITER = "Llama-3.1-8B-Instruct"
"""The verifier that writes critiques."""
ROOM = 4
"""A critique's limit over its mean length: of the simulated ones one in 500 is cut."""

_MEMORY_SHARE = 0.9  # of the GPU, for weights and KV cache; the rest is activations and libraries
_BLOCK_SIZE = 32


def simulated_deployment(
    gpu: GpuName, gpus: int, *, critique_tokens: int | None = None, writer: str = WRITER
) -> Deployment:
    """The usual pair on one GPU, or on two, one each.

    With `critique_tokens`, the mean length of a critique, the verifier is `writer`. The memory that
    is left is KV cache, half each where they share it.
    """
    alone = gpus > 1
    generator = {"in_flight_requests": 512, "step_delimiter": DELIMITER}
    verifier = {**_engine(VERIFIER, device=int(alone)), "in_flight_tokens": 65536}
    if critique_tokens is not None:
        verifier = {
            **_engine(writer, device=int(alone)),
            "format": "critique",
            "in_flight_requests": 512,
            "critique": {"max_tokens": ROOM * critique_tokens},
        }
    deployment = Deployment.model_validate(
        {
            "name": SIMULATED,
            "target": "tensorrt",
            "tensorrt": {"gpu": gpu},
            "generator": {**_engine(GENERATOR, device=0), **generator},
            "verifier": verifier,
        }
    )
    shapes = shapes_of(deployment)
    pools: dict[str, EngineSpec] = {}
    for role, spec in deployment.engines().items():
        here = [shapes[role]] if alone else [*shapes.values()]
        free = GPUS[gpu].memory * _MEMORY_SHARE - sum(shape.weight_bytes for shape in here)
        tokens = int(free / len(here) / shapes[role].kv_bytes)
        cache = spec.kv_cache.model_copy(update={"tokens": tokens})
        pools[role] = spec.model_copy(update={"kv_cache": cache})
    return deployment.model_copy(update=pools)


def _engine(name: str, device: int) -> dict[str, Any]:
    return {
        "checkpoint": name,
        "precision": "bf16",
        "max_batch_size": 512,
        "max_num_tokens": 8192,
        "max_seq_len": 4096,
        "kv_cache": {"tokens": 4096, "block_size": _BLOCK_SIZE},
        "tensorrt": {"gpus": [[device]]},
    }


def as_simulated(deployment: Deployment) -> Deployment:
    """A deployment whose texts are simulated ones: one character per token, see workload.py.

    Its system prompt has as many tokens as the memory plan takes it for.
    """
    generator = deployment.generator
    tokens = len(generator.system_prompt or "") // CHARACTERS_PER_TOKEN
    update = {"system_prompt": FILLING * tokens or None, "step_delimiter": DELIMITER}
    return deployment.model_copy(update={"generator": generator.model_copy(update=update)})


def on_own_cores(deployment: Deployment) -> Deployment:
    """A deployment for a CPU, its engines on cores of their own: device 0 and device 1."""
    verifier = deployment.verifier.model_copy(update={"tensorrt": TensorRTEngine(gpus=((1,),))})
    return deployment.model_copy(update={"verifier": verifier})


def shapes_of(deployment: Deployment) -> dict[Role, ModelShape]:
    """The shapes of both engines.

    A verifier that has its whole language head reads it in every step; that of a pair without a
    deployment file is cut to the rows of its labels, unless it writes. Raises CheckpointError for a
    checkpoint that is neither there nor known.
    """
    shapes = {}
    for role, spec in deployment.engines().items():
        config = engine_shape(shape_of(spec.checkpoint), spec)
        writes = role == "generator" or deployment.verifier_model.facts.writes
        whole = writes or deployment.name != SIMULATED
        shape = ModelShape.of(config, spec.precision, spec.placement, head=whole)
        if not writes:
            read = shape.body_bytes + shape.head_bytes
            shape = replace(shape, body_bytes=read, head=0.0, head_bytes=0.0)
        shapes[role] = shape
    return shapes
