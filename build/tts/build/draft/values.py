"""The deployment that suits two models and a machine, with sizes that fit by the memory plans.

The plans decide on precision, placement and KV pools (`plan_host_memory` on a CPU, `place` on
GPUs). Settings that change the models least are tried first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tts.base.errors import ConfigError
from tts.base.shown_text import gib

from ..openvino.memory import plan_host_memory
from ..spec import FORMATS, PRECISIONS, Deployment, EngineSpec, Precision, Role, VerifierSpec
from ..started.command import require_head
from ..started.memory import is_known, plan_started
from ..tensorrt.contract import precision_problem
from ..tensorrt.placements import Placement, place, placements
from .facts import Choices, FunctionModel, Machine, Model, ServedModel

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
_EXACT_SHARE = 1 / 4
"""Share of the machine's memory: a pair that takes no more in fp32 is small, and fast enough."""
_SHARE = 3 / 4
"""Share of the machine's memory that a pair may take beside everything else."""
_MAX_GPUS = 8
"""Considered where the file is for GPUs that are not here."""
_FEW = 16
"""Requests of a pair that has little memory."""
_SEQUENCES = 8
"""Sequences of full length that a pool should hold."""
_STARTED_REQUESTS = (128, 64, 16)
"""Requests of a generator that is started on GPUs."""
_BATCHES = (512, 128)
"""Requests of a generator on GPUs."""


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
        return _started_on_gpus(deployment, machine)
    if not deployment.engines() or choices.guessed:
        return deployment
    return (_on_cpu if choices.target == "openvino" else _on_gpus)(deployment, machine)


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
        # an engine that is started fetches models itself
        started = {"checkpoint": model.repository or model.checkpoint, "max_seq_len": length}
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


def _on_cpu(deployment: Deployment, machine: Machine) -> Deployment:
    """The deployment with sizes that fit; raises ConfigError with the figures if none do."""
    there = machine.memory
    for precision, share, batch in _host_choices(machine):
        candidate = _with(deployment, precision, batch)
        needed = plan_host_memory(candidate).needed
        if there is None or needed <= share * there:
            return candidate
    raise ConfigError(
        f"The models need {gib(needed)} of memory even with int8 weights, and this machine has "
        f"{gib(there or 0)}.",
        hint="Use smaller models, a machine with more memory, or a server elsewhere (--generator "
        "URL).",
    )


def _host_choices(machine: Machine) -> Iterator[tuple[Precision, float, int | None]]:
    """Precisions, the share of the memory that they may take, and how many requests."""
    yield "fp32", _EXACT_SHARE, None
    if machine.bf16:
        yield "bf16", _SHARE, None
    yield "int8", _SHARE, None
    yield "int8", _SHARE, _FEW
    yield "int8", 1.0, 1


def _on_gpus(deployment: Deployment, machine: Machine) -> Deployment:
    gpu = deployment.tensorrt_block.gpu
    return _first_with_room(
        partial(_placed, _with(deployment, precision, batch), placement)
        for precision in PRECISIONS[deployment.target]
        # fp16 has the size of bf16 and less of its range
        if precision != "fp16" and precision_problem(gpu, precision) is None
        for gpus in range(1, (machine.gpus or _MAX_GPUS) + 1)
        for placement in placements(gpus)
        if placement.servers == 1
        for batch in _BATCHES
    )


def _started_on_gpus(deployment: Deployment, machine: Machine) -> Deployment:
    return _first_with_room(
        partial(_planned, _started(deployment, gpus, precision, requests))
        for gpus in ([(0, 0)] if machine.gpus == 1 else [(0, 0), (0, 1)])
        for precision in ("auto", "fp8")
        for requests in _STARTED_REQUESTS
    )


def _first_with_room(plans: Iterable[Callable[[], tuple[Deployment, bool]]]) -> Deployment:
    """The first deployment that has room, else the first that fits; raises the first refusal."""
    refusals, narrow = [], []
    for plan in plans:
        try:
            deployment, has_room = plan()
        except ConfigError as error:
            refusals.append(error)
            continue
        if has_room:
            return deployment
        narrow.append(deployment)
    if narrow:
        return narrow[0]
    raise refusals[0]


def _placed(deployment: Deployment, placement: Placement) -> tuple[Deployment, bool]:
    """The deployment so placed, and whether its pools hold enough for engines to be busy."""
    placed = place(deployment, placement)
    engines = placed.engines().values()
    return placed, all(e.kv_cache.tokens >= _SEQUENCES * e.max_seq_len for e in engines)


def _planned(deployment: Deployment) -> tuple[Deployment, bool]:
    """The deployment, which fits, and whether its generator's pool holds enough."""
    generator = plan_started(deployment).engines.get("generator")
    return deployment, generator is None or generator.full_sequences >= _SEQUENCES


def _started(
    deployment: Deployment, gpus: tuple[int, int], precision: str, requests: int
) -> Deployment:
    """The deployment with its engines on these GPUs, and so many requests in flight."""
    update: dict[str, Any] = {}
    for role, spec in deployment.started().items():
        gpu = gpus[role == "verifier"]
        able = precision in PRECISIONS[spec.target]
        update[role] = spec.model_copy(
            update={"gpus": (gpu,) if gpu else (), "precision": precision if able else "auto"}
        )
    generator = update.get("generator", deployment.generator)
    update["generator"] = generator.model_copy(update={"in_flight_requests": requests})
    return deployment.model_copy(update=update)


def _with(deployment: Deployment, precision: Precision, batch: int | None) -> Deployment:
    """The deployment in another precision, with at most this many requests and pools for them."""
    engines: dict[str, EngineSpec] = {}
    for role, spec in deployment.engines().items():
        update: dict[str, object] = {"precision": precision}
        if batch is not None and batch < spec.max_batch_size:
            tokens = pool(batch, spec.max_seq_len, spec.kv_cache.block_size)
            update["max_batch_size"] = batch
            update["kv_cache"] = spec.with_pool(tokens).kv_cache
            if spec.writes:
                update["in_flight_requests"] = batch
            if isinstance(spec, VerifierSpec) and spec.in_flight_tokens:
                update["in_flight_tokens"] = min(spec.in_flight_tokens, batch * spec.max_seq_len)
        engines[role] = spec.model_copy(update=update)
    return deployment.model_copy(update=engines)


def pool(batch: int, length: int, block: int = 32) -> int:
    """Tokens of a pool for this many requests, most of which are far from the greatest length."""
    return -(-max(length, batch * min(length, 1024)) // block) * block
