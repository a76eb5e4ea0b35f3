"""Servers of deployments on simulated GPUs: engines, caches, and the endpoints before them.

What is simulated is the usual pair of published models, or the shapes of any deployment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from tts.build.inputs import engine_shape
from tts.build.model_config import shape_of
from tts.build.spec import Deployment, EngineSpec, Role, TensorRTEngine, VerifierRole
from tts.build.spec import Gpu as GpuName
from tts.build.tensorrt.gpus import gpus_of
from tts.build.tensorrt.memory_plan import CHARACTERS_PER_TOKEN
from tts.build.tokenizer import Ids
from tts.endpoints.base import GenerateCall, ScoreCall, VerifierResult
from tts.endpoints.streaming import NewTokens
from tts.endpoints.together import together
from tts.engines.simulated import (
    GPUS,
    Affine,
    Gpus,
    ModelShape,
    PagedCache,
    Roofline,
    Sharing,
    SimulatedEngine,
    SimulatedRequest,
    StepTime,
    StepTotals,
)
from tts.fleet.routing import PrefixAffinity, Replica, Router
from tts.runs.replay import Script

from .workload import DELIMITER, END_ID, FILLING

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
    gpu: GpuName, gpus: int, *, critique_tokens: int | None = None
) -> Deployment:
    """The usual pair on one GPU, or on two, one each.

    With `critique_tokens`, the mean length of a critique, the verifier is one that writes. The
    memory that is left is KV cache, half each where they share it.
    """
    alone = gpus > 1
    generator = {"in_flight_requests": 512, "step_delimiter": DELIMITER}
    verifier = {**_section(VERIFIER, device=int(alone)), "in_flight_tokens": 65536}
    if critique_tokens is not None:
        verifier = {
            **_section(WRITER, device=int(alone)),
            "format": "critique",
            "in_flight_requests": 512,
            "critique": {"max_tokens": ROOM * critique_tokens},
        }
    deployment = Deployment.model_validate(
        {
            "name": SIMULATED,
            "target": "tensorrt",
            "tensorrt": {"gpu": gpu},
            "generator": {**_section(GENERATOR, device=0), **generator},
            "verifier": verifier,
        }
    )
    shapes = shapes_of(deployment)
    pools: dict[str, EngineSpec] = {}
    for role, spec in deployment.engines().items():
        here = [shapes[role]] if alone else [*shapes.values()]
        free = GPUS[gpu].memory * _MEMORY_SHARE - sum(shape.weight_bytes for shape in here)
        tokens = int(free / len(here) / shapes[role].kv_bytes)
        pools[role] = spec.with_pool(tokens)
    return deployment.model_copy(update=pools)


def _section(name: str, device: int) -> dict[str, Any]:
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


CALL_S = 0.5e-3
"""Time of the orchestrator's processor assumed for a call; step times fitted to measurements
include it."""
CANCEL_S = 5e-3
"""After so long a cancelled call stops on the engine."""
PIECE = 32
"""Tokens that a stream hands over at a time."""
# What arrives at the same moment shares a step: so long does an idle engine wait for more.
_GATHER_S = 1e-6


@dataclass(eq=False)
class SimulatedServer:
    """GPUs on the event loop's clock, and the one process in front of them.

    `call_s` is what the orchestrator's processor is busy with each call (token ids, gRPC): calls
    queue for it.
    """

    gpus: Sequence[Gpus]
    call_s: float = CALL_S
    busy_s: float = 0.0
    """Time that the orchestrator's processor has spent on calls."""
    _futures: dict[SimulatedRequest, asyncio.Future[None]] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None
    _free_at: float = 0.0

    async def serve(self, engines: Sequence[SimulatedEngine], request: SimulatedRequest) -> None:
        """Return when an engine has answered: that with the fewest requests."""
        loop = asyncio.get_running_loop()
        self.busy_s += self.call_s
        self._free_at = max(self._free_at, loop.time()) + self.call_s
        await asyncio.sleep(self._free_at - loop.time())
        engine = min(engines, key=lambda each: each.requests) if len(engines) > 1 else engines[0]
        engine.submit(request)
        self._wake(loop.time() + _GATHER_S)
        future = self._futures[request] = loop.create_future()
        try:
            await future
        except asyncio.CancelledError:
            loop.call_later(CANCEL_S, self._cancel, engine, request)
            raise
        finally:
            del self._futures[request]

    def _cancel(self, engine: SimulatedEngine, request: SimulatedRequest) -> None:
        engine.cancel(request)
        self._wake(asyncio.get_running_loop().time())

    def _run(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for gpu in self.gpus:
            for request in gpu.run(now):
                if (future := self._futures.get(request)) and not future.done():
                    future.set_result(None)
        due = [next_s for gpu in self.gpus if (next_s := gpu.next_s()) is not None]
        if due:
            self._wake(min(due))

    def _wake(self, when: float) -> None:
        """Run the GPUs at that time, or before."""
        if self._timer is None or when < self._timer.when():
            if self._timer:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(when, self._run)


@dataclass(frozen=True)
class SimulatedGenerator:
    """See endpoints.Generator."""

    server: SimulatedServer
    engines: Sequence[SimulatedEngine]
    script: Script

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator."""
        ids = self.script.generate(call)
        answer = [*ids, END_ID] if self.script.has_ended(call, ids) else ids
        request = SimulatedRequest(call.input_ids, _as_ids(answer), call.max_new_tokens)
        await self.server.serve(self.engines, request)
        return ids

    async def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        """See endpoints.StreamingGenerator; the log-probabilities are made up from the seed.

        Tokens come in pieces, each a request of its own, whose prompt the engine has in its cache.
        """
        ids = self.script.generate(call)
        log_probs = _log_probs(call.seed, len(ids))
        size = PIECE if call.streaming else call.max_new_tokens
        for start in range(0, max(1, len(ids)), size):
            piece = ids[start : start + size]
            last = start + size >= len(ids)
            prompt = np.concatenate((call.input_ids, _as_ids(ids[:start])))
            answer = [*piece, END_ID] if last and self.script.has_ended(call, ids) else piece
            request = SimulatedRequest(prompt, _as_ids(answer), call.max_new_tokens - start)
            await self.server.serve(self.engines, request)
            yield NewTokens(piece, log_probs[start : start + size], last)


def _log_probs(seed: int, count: int) -> list[float]:
    """Log-probabilities as of a sampled chain: mostly near 0, lower in some chains than others."""
    rng = random.Random(seed)
    rate = rng.uniform(2.0, 8.0)
    return [-rng.expovariate(rate) for _ in range(count)]


@dataclass(frozen=True)
class SimulatedVerifier:
    """See endpoints.Verifier. One that writes has a request for each critique."""

    server: SimulatedServer
    engines: Sequence[SimulatedEngine]
    script: Script
    spec: VerifierRole

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        prompt, score = call.input_ids, self.script.score(call.input_ids)
        if not self.spec.facts.writes:
            await self.server.serve(self.engines, SimulatedRequest(prompt, _as_ids([END_ID]), 1))
            return VerifierResult(score)
        critique = self.spec.critique
        room = min(critique.max_tokens, self.spec.max_seq_len - len(prompt))
        numbers = range(critique.samples)
        critiques = [self.script.critique(prompt, number)[:room] for number in numbers]
        requests = [
            SimulatedRequest(prompt, _as_ids([*ids, END_ID][:room]), room) for ids in critiques
        ]
        await together(self.server.serve(self.engines, request) for request in requests)
        return VerifierResult(score, tokens=sum(map(len, critiques)))


def _as_ids(tokens: Sequence[int]) -> Ids:
    return np.asarray(tokens, dtype=np.int32)


SimulatedPair = Mapping[Role, Sequence[SimulatedEngine]]
"""The engines of one server. Among several replicas of an engine the least loaded is asked."""


@dataclass(frozen=True)
class Fleet:
    """All servers, and the orchestrator's process in front of them."""

    server: SimulatedServer
    pairs: Sequence[SimulatedPair]

    def totals(self, role: Role) -> StepTotals:
        """The sums over all engines of a role, and the mean of their busy times."""
        engines = [engine for pair in self.pairs for engine in pair[role]]
        added = StepTotals()
        for total in fields(StepTotals):
            of_all = sum(getattr(engine.totals, total.name) for engine in engines)
            setattr(added, total.name, of_all)
        added.busy_s /= len(engines)
        return added


def fleet_of(
    deployment: Deployment,
    servers: int,
    sharing: Sharing,
    fits: Mapping[Role, Affine] | None = None,
) -> Fleet:
    """Servers, each with GPUs, engines and caches of its own.

    Step times are those of `fits`, or of the models on the deployment's GPUs. Raises
    CheckpointError for a model whose shape is not known.
    """
    times: Mapping[Role, StepTime] = fits or _times(deployment)
    pairs: list[SimulatedPair] = []
    engines: list[SimulatedEngine] = []
    devices: list[frozenset[int]] = []
    for number in range(servers):
        first = number * (gpus_of(deployment)[-1] + 1)
        by_role: dict[Role, list[SimulatedEngine]] = {}
        for role, spec in deployment.engines().items():
            by_role[role] = [_engine(spec, times[role]) for _ in spec.placement.replicas]
            engines += by_role[role]
            devices += [
                frozenset(first + device for device in replica)
                for replica in spec.placement.replicas
            ]
        pairs.append({"verifier": by_role["generator"], **by_role})
    gpus = [
        Gpus([engines[i] for i in members], sharing, [devices[i] for i in members])
        for members in connected(devices)
    ]
    return Fleet(SimulatedServer(gpus, 0.0 if fits else CALL_S), pairs)


def router_of(fleet: Fleet) -> Router[Replica]:
    """The router in front of the servers, which it knows by their numbers."""
    router: Router[Replica] = Router(PrefixAffinity())
    for number in range(len(fleet.pairs)):
        router.add(Replica(str(number)))
    return router


def _times(deployment: Deployment) -> Mapping[Role, StepTime]:
    assert deployment.tensorrt is not None
    gpu = GPUS[deployment.tensorrt.gpu]
    return {role: Roofline(gpu, shape) for role, shape in shapes_of(deployment).items()}


def _engine(spec: EngineSpec, step_time: StepTime) -> SimulatedEngine:
    cache = spec.kv_cache
    return SimulatedEngine(
        step_time,
        PagedCache(cache.blocks, cache.block_size, reuse=cache.reuse),
        spec.max_batch_size,
        spec.max_num_tokens,
    )


def connected(devices: Sequence[frozenset[int]]) -> list[list[int]]:
    """Places of the engines that have GPUs in common, directly or through others."""
    parts: list[tuple[set[int], list[int]]] = []
    for number, mine in enumerate(devices):
        touched = [part for part in parts if part[0] & mine]
        parts = [part for part in parts if not part[0] & mine]
        union = set(mine).union(*(devices_of_part for devices_of_part, _ in touched))
        parts.append((union, sorted([number, *(each for _, them in touched for each in them)])))
    return [members for _, members in sorted(parts, key=lambda part: part[1])]
