"""Precision, placement and KV pools with which a new deployment fits a machine.

The memory plans decide (`plan_host_memory` on a CPU, `place` on GPUs). Settings that change the
models least are tried first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tts.base.errors import ConfigError

from ..openvino.memory import gib, plan_host_memory
from ..spec import PRECISIONS, Deployment, EngineSpec, Precision, VerifierSpec
from ..started.memory import plan_started
from ..tensorrt.contract import precision_problem
from ..tensorrt.placements import Placement, place, placements
from .facts import Machine

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


def fitted(deployment: Deployment, machine: Machine) -> Deployment:
    """The deployment with sizes that fit; raises ConfigError with the figures if none do."""
    if deployment.target == "openvino":
        return _on_cpu(deployment, machine)
    return _on_gpus(deployment, machine)


def _on_cpu(deployment: Deployment, machine: Machine) -> Deployment:
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
    return _first_with_room(
        partial(_placed, _with(deployment, precision, batch), placement)
        for precision in _gpu_precisions(deployment)
        for placement in _gpu_placements(machine.gpus or _MAX_GPUS)
        for batch in _BATCHES
    )


def started_on_gpus(deployment: Deployment, machine: Machine) -> Deployment:
    """The deployment of engines that are started with sizes that fit; raises ConfigError if none
    do.
    """
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


def _gpu_precisions(deployment: Deployment) -> Iterator[Precision]:
    for precision in PRECISIONS[deployment.target]:
        usual = precision != "fp16"  # which has the size of bf16 and less of its range
        if usual and precision_problem(deployment.tensorrt_block.gpu, precision) is None:
            yield precision


def _gpu_placements(most: int) -> Iterator[Placement]:
    """Ways to place one server, on few GPUs first."""
    for gpus in range(1, most + 1):
        yield from (each for each in placements(gpus) if each.servers == 1)


def _with(deployment: Deployment, precision: Precision, batch: int | None) -> Deployment:
    """The deployment in another precision, with at most this many requests and pools for them."""
    return deployment.model_copy(
        update={
            role: _smaller(spec, precision, batch) for role, spec in deployment.engines().items()
        }
    )


def _smaller(spec: EngineSpec, precision: Precision, batch: int | None) -> EngineSpec:
    update: dict[str, object] = {"precision": precision}
    if batch is not None and batch < spec.max_batch_size:
        tokens = pool(batch, spec.max_seq_len, spec.kv_cache.block_size)
        update["max_batch_size"] = batch
        update["kv_cache"] = spec.kv_cache.model_copy(update={"tokens": tokens})
        if spec.writes:
            update["in_flight_requests"] = batch
        if isinstance(spec, VerifierSpec) and spec.in_flight_tokens:
            update["in_flight_tokens"] = min(spec.in_flight_tokens, batch * spec.max_seq_len)
    return spec.model_copy(update=update)


def pool(batch: int, length: int, block: int = 32) -> int:
    """Tokens of a pool for this many requests, most of which are far from the greatest length."""
    return -(-max(length, batch * min(length, 1024)) // block) * block
