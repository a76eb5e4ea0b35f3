"""Whether a target computes a model, a GPU its precision, and whether it divides as asked.

Asked before anything is planned or built: TensorRT-LLM would refuse the same after hours, or change
it with a warning only.
"""

from __future__ import annotations

from typing import NoReturn

from tts.base.errors import ConfigError

from ..model_config import ModelConfig
from ..spec import PRECISIONS, STARTED, Deployment, Gpu, Role
from . import contract
from .heads import require_convertible


def check_feasible(deployment: Deployment, role: Role, model: ModelConfig) -> None:
    """Raise ConfigError for an engine that cannot be on the deployment's kind of GPU."""
    if deployment.target not in STARTED:
        require_convertible(deployment, role, model)
        _check_precision(deployment, role, deployment.tensorrt_block.gpu)
    _check_parallelism(deployment, role, model)


def _check_precision(deployment: Deployment, role: Role, gpu: Gpu) -> None:
    precision = deployment.engines()[role].precision
    if problem := contract.precision_problem(gpu, precision):
        able = [p for p in PRECISIONS["tensorrt"] if contract.precision_problem(gpu, p) is None]
        raise ConfigError(
            f"Deployment {deployment.name!r}: {role}.precision is {precision!r} on {gpu}: "
            f"{problem}.",
            hint=f"Set {role}.precision to one that {gpu} has ({', '.join(able)}), or tensorrt.gpu "
            "to another GPU.",
        )


def _check_parallelism(deployment: Deployment, role: Role, model: ModelConfig) -> None:
    placement = deployment.engines()[role].placement
    tensor, pipeline = placement.tensor_parallel, placement.pipeline_parallel
    ways, experts = placement.expert_parallel, model.experts

    def refuse(field: str, value: int, why: str) -> NoReturn:
        where = f"{role}.{field}" if deployment.target in STARTED else f"{role}.tensorrt.{field}"
        raise ConfigError(
            f"Deployment {deployment.name!r}: {where} is {value}{why}.",
            hint=f"Choose a {where} that fits the model.",
        )

    if model.num_layers < pipeline:
        refuse("pipeline_parallel", pipeline, f", but the model has {model.num_layers} layers")
    if model.num_heads % tensor:
        heads = f"the model's {model.num_heads} attention heads"
        refuse("tensor_parallel", tensor, f"; it must divide {heads}")
    if model.num_kv_heads % tensor and tensor % model.num_kv_heads:
        heads = f"the model's {model.num_kv_heads} key/value heads"
        refuse("tensor_parallel", tensor, f"; it must divide {heads}, or be a multiple of them")
    if ways > 1 and experts is None:
        refuse("expert_parallel", ways, ", but the model has no experts")
    if experts and experts.count % ways:
        refuse("expert_parallel", ways, f"; it must divide the model's {experts.count} experts")
    width = experts.intermediate_size if experts else model.intermediate_size
    if width % (tensor // ways):
        refuse("tensor_parallel", tensor, f", but the model's MLP is {width} wide")
