"""The deployment that suits two models and a machine."""

from __future__ import annotations

import re
from typing import Any

from ..spec import FORMATS, Deployment, Role
from ..started.command import require_head
from ..started.memory import is_known
from .facts import Choices, FunctionModel, Machine, Model, ServedModel
from .fit import fitted, pool, started_on_gpus

CONTEXT = 4096
"""Tokens of a sequence where the models have as many: enough for a solution in steps."""
_UNKNOWN_CONTEXT = 2048
_THOUGHTS = 8192
"""Tokens of the thinking of a model that is published as one that thinks."""
_THINKS = re.compile(r"^qwen3-\d|-r1-|thinking|reasoning|qwq", re.IGNORECASE)
_PROMPT = 2048
"""Tokens that a prompt or a critique may add to the text that it judges."""
SYSTEM_PROMPT = (
    "Please reason step by step, and put your final answer within \\boxed{}."  # of Qwen2.5-Math
)
_TEMPLATE = {"head": "{question}\n\n", "answer": "\n\n", "turn": "{label}\n\n"}


def drafted(choices: Choices, machine: Machine) -> Deployment:
    """The deployment of these models on this machine, with absolute paths of checkpoints.

    Raises ConfigError if they do not fit it, CheckpointError for a checkpoint that cannot be used.
    """
    values: dict[str, Any] = {
        "name": choices.name,
        "target": choices.target,
        "generator": _generator(choices, machine),
        "verifier": _verifier(choices, machine),
    }
    if choices.on_gpus:
        values["tensorrt"] = {"gpu": machine.gpu}
    elif choices.is_started:
        values["gpu"] = machine.gpu
    if choices.target == "openvino" and not machine.triton:
        values["server"] = {"kind": "embedded"}
    deployment = Deployment.model_validate(values)
    started = deployment.started()
    for role in started:
        require_head(deployment, role)
    if started and deployment.gpu and all(map(is_known, started.values())):
        return started_on_gpus(deployment, machine)
    if not deployment.engines() or choices.guessed:
        return deployment
    return fitted(deployment, machine)


def _requests(choices: Choices) -> int:
    """Requests in flight where nothing else says how many: each has a slot in llama.cpp."""
    return 8 if choices.target == "llama.cpp" else 64


def _length(model: Model, most: int) -> int:
    return min(model.positions or _UNKNOWN_CONTEXT, most)


def _generator(choices: Choices, machine: Machine) -> dict[str, Any]:
    length = _length(choices.generator, CONTEXT)
    if not isinstance(choices.verifier, FunctionModel):  # it has to read all that is written
        length = min(length, _length(choices.verifier, CONTEXT))
    values = _model("generator", choices.generator, length, machine, choices)
    if choices.is_started and _THINKS.search(choices.generator.name):
        budget = min(_THOUGHTS, (choices.generator.positions or _THOUGHTS) - CONTEXT // 2)
        values["thinking"] = {"budget_tokens": budget}
        values["max_seq_len"] = budget + CONTEXT // 2  # which the verifier does not read
    values["in_flight_requests"] = values.get("max_batch_size", _requests(choices))
    values["system_prompt"] = choices.system_prompt or None
    if "checkpoint" in values and choices.on_gpus:
        values["scheduling_policy"] = "max_utilization"
    return values


def _verifier(choices: Choices, machine: Machine) -> dict[str, Any]:
    model, form = choices.verifier, choices.format
    if isinstance(model, FunctionModel):
        return {"function": model.name}
    facts = FORMATS[form]
    length = _length(model, CONTEXT + (_PROMPT if facts.needs == "prompt" or facts.writes else 0))
    values = _model("verifier", model, length, machine, choices)
    if choices.is_started and model == choices.generator:
        values = {"same_as": "generator"}
    on_gpu = choices.target != "openvino" or "url" in values
    budget = 65536 if on_gpu else 8192
    if choices.target == "llama.cpp":
        budget = _requests(choices) * length
    if "max_batch_size" in values:
        budget = min(budget, values["max_batch_size"] * length)
    if facts.writes:
        values["in_flight_requests"] = values.get("max_batch_size", 64)
    else:
        values["in_flight_tokens"] = max(budget, length)
    values["format"] = form
    if facts.needs == "prompt":
        values["prompt"] = choices.prompt
    if form == "custom":
        values["template"] = {**_TEMPLATE, **({} if model.head == "labels" else {"turn": ""})}
    return values


def _model(
    role: Role, model: Model, length: int, machine: Machine, choices: Choices
) -> dict[str, Any]:
    """What both sections begin with."""
    if isinstance(model, ServedModel):
        return {"url": model.url, "tokenizer": model.tokenizer, "max_seq_len": length}
    generates = role == "generator"
    if choices.is_started:
        started = {"checkpoint": model.started_from, "max_seq_len": length}
        return started | ({"tokenizer": model.tokenizer} if model.tokenizer else {})
    if choices.target == "openvino":
        batch, step = max(16, min(64, 2 * machine.cores)), 256 if generates else 512
        tokens, precision = pool(batch, length), "int8"
        batch = 64 if generates else batch  # short ones share the pool, and each reading of weights
    else:
        batch, step = (512, 4096) if generates else (64, 8192)
        tokens, precision = pool(batch, length), "bf16"
    return {
        "checkpoint": model.folder,
        "precision": precision,
        "max_batch_size": batch,
        "max_num_tokens": step,
        "max_seq_len": length,
        "kv_cache": {"tokens": tokens},
    }
