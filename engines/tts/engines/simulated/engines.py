"""Engines on GPUs: their queues, batches and steps, and which steps run when, and how fast.

A step advances every generating request by a token and fills up to `max_num_tokens` with prompt
tokens, oldest request first. As long as nothing arrives or ends, steps are alike: they are planned
together, as a burst.

Alone, a step runs at its own speed. Two engines on one GPU are between two bounds:

- `time-sliced`: one computes at a time; n engines at work run at 1/n of their speed each.
- `overlapped`: they slow each other down only where together they need more than the GPU's
  achievable FLOP/s or memory bandwidth.

The ranks of an engine on several GPUs wait for each other, so it is as fast as on the slowest.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tts.base.choices import Sharing
from tts.base.errors import RequestError
from tts.build.tensorrt.step_time import StepCost, StepLoad, StepTime

from .kv_cache import BlockLease, PagedCache

if TYPE_CHECKING:
    from tts.build.tokenizer import Ids


from collections.abc import Collection, Sequence
from math import ceil


@dataclass(eq=False, slots=True)
class SimulatedRequest:
    """A prompt and the answer that it will get, which is at least one token long.

    `max_new_tokens` is what was asked for: room in the cache is reserved for all of it.
    """

    prompt: Ids
    answer: Ids
    max_new_tokens: int
    computed: int = 0
    """Tokens of the prompt whose KV is there."""
    last_step: int = 0
    """The step that generates its last token."""
    lease: BlockLease | None = None
    cancelled: bool = False


@dataclass(slots=True)
class StepTotals:
    """Running totals of an engine."""

    steps: int = 0
    generated_tokens: int = 0
    """Answer tokens, including those of requests that were cancelled."""
    computed_tokens: int = 0
    """Prompt tokens that were computed."""
    reused_tokens: int = 0
    """Prompt tokens that were found in the cache."""
    request_steps: int = 0
    """Requests in the batch, summed over the steps."""
    wasted_tokens: int = 0
    """Answer tokens of requests that were cancelled."""
    busy_s: float = 0.0
    """Time in which a step was running; kept by the GPU."""


@dataclass(slots=True)
class Burst:
    """Steps that cost the same, and the prompt tokens in them (then it is one step)."""

    steps: int
    cost: StepCost
    chunks: list[tuple[SimulatedRequest, int]]


@dataclass(eq=False, slots=True)
class SimulatedEngine:
    """The state of one engine. `plan` and `finish` are called in turn."""

    step_time: StepTime
    cache: PagedCache
    max_batch_size: int
    max_num_tokens: int
    totals: StepTotals = field(default_factory=StepTotals)
    disturbed: bool = False
    """Whether a request came or was cancelled since the running burst was planned."""
    _waiting: deque[SimulatedRequest] = field(default_factory=deque)
    _prefilling: dict[SimulatedRequest, None] = field(default_factory=dict)
    _decoding: dict[SimulatedRequest, None] = field(default_factory=dict)
    _ends: list[tuple[int, int, SimulatedRequest]] = field(default_factory=list)
    """Heap of the generating requests by last step and age; cancelled ones stay until popped."""
    _started: int = 0
    _context: int = 0
    """Tokens that the generating requests attend to in the next step."""
    _cancelled: list[SimulatedRequest] = field(default_factory=list)

    @property
    def requests(self) -> int:
        """Requests that wait or run."""
        return len(self._waiting) + len(self._prefilling) + len(self._decoding)

    def submit(self, request: SimulatedRequest) -> None:
        """Queue a request; raises RequestError if it could never start."""
        needed = self.cache.blocks_for(len(request.prompt) + request.max_new_tokens)
        if needed > self.cache.blocks:
            raise RequestError(
                f"A request needs {needed} KV blocks; the pool has {self.cache.blocks}."
            )
        self._waiting.append(request)
        self.disturbed = True

    def cancel(self, request: SimulatedRequest) -> None:
        """Drop a request before the next step; one that is over by then is left alone."""
        self._cancelled.append(request)
        self.disturbed = True

    def plan(self) -> Burst | None:
        """The next steps, or None if there is nothing to do."""
        self.disturbed = False
        self._drop_cancelled()
        self._admit()
        chunks: list[tuple[SimulatedRequest, int]] = []
        room = self.max_num_tokens - len(self._decoding)
        attention, cached = 0.0, 0
        for request in self._prefilling:
            if room <= 0:
                break
            tokens = min(len(request.prompt) - request.computed, room)
            chunks.append((request, tokens))
            attention += tokens * (request.computed + tokens / 2)
            cached += request.computed
            room -= tokens
        decodes = len(self._decoding)
        if not chunks and not decodes:
            return None
        steps = 1 if chunks else self._next_end() - self.totals.steps
        context = self._context + decodes * (steps - 1) / 2  # on average over the burst
        prefill = sum(tokens for _, tokens in chunks)
        load = StepLoad(decodes, context, prefill, attention, cached)
        return Burst(steps, self.step_time.cost(load), chunks)

    def finish(self, burst: Burst) -> list[SimulatedRequest]:
        """Take in the effect of a burst; the requests that it completed."""
        totals, decodes = self.totals, len(self._decoding)
        totals.steps += burst.steps
        totals.generated_tokens += decodes * burst.steps
        totals.request_steps += (decodes + len(burst.chunks)) * burst.steps
        self._context += decodes * burst.steps
        complete: list[SimulatedRequest] = []
        while self._ends and self._ends[0][0] <= totals.steps:
            request = heapq.heappop(self._ends)[2]
            if not request.cancelled:
                del self._decoding[request]
                self._context -= len(request.prompt) + len(request.answer)
                complete.append(request)
        for request, tokens in burst.chunks:
            request.computed += tokens
            totals.computed_tokens += tokens
            if request.computed == len(request.prompt):
                self._prefilled(request, complete)
        for request in complete:
            assert request.lease is not None
            fed = request.answer[:-1]  # the last token is never fed back
            self.cache.keep(request.lease, np.concatenate((request.prompt, fed)))
            self.cache.close(request.lease)
            request.lease = None
        return complete

    def _prefilled(self, request: SimulatedRequest, complete: list[SimulatedRequest]) -> None:
        """A prompt is complete, and with it the first token of the answer."""
        assert request.lease is not None
        del self._prefilling[request]
        self.totals.generated_tokens += 1
        self.cache.keep(request.lease, request.prompt)
        if len(request.answer) == 1:
            complete.append(request)
            return
        request.last_step = self.totals.steps + len(request.answer) - 1
        self._decoding[request] = None
        self._context += len(request.prompt) + 1
        self._started += 1
        heapq.heappush(self._ends, (request.last_step, self._started, request))

    def _admit(self) -> None:
        while self._waiting and len(self._prefilling) + len(self._decoding) < self.max_batch_size:
            request = self._waiting[0]
            tokens = len(request.prompt) + request.max_new_tokens
            request.lease = self.cache.open(request.prompt, tokens)
            if request.lease is None:
                return
            request.computed = request.lease.reused_tokens
            self.totals.reused_tokens += request.computed
            self._prefilling[self._waiting.popleft()] = None

    def _next_end(self) -> int:
        while self._ends[0][2].cancelled:
            heapq.heappop(self._ends)
        return self._ends[0][0]

    def _drop_cancelled(self) -> None:
        for request in self._cancelled:
            if request in self._decoding:
                del self._decoding[request]
                answer_tokens = len(request.answer) - (request.last_step - self.totals.steps)
                self._context -= len(request.prompt) + answer_tokens
                self.totals.wasted_tokens += answer_tokens
            elif request in self._prefilling:
                del self._prefilling[request]
            elif request in self._waiting:
                self._waiting.remove(request)
            request.cancelled = True
            if request.lease:
                self.cache.close(request.lease)
                request.lease = None
        self._cancelled.clear()


_ROUNDING_S = 1e-9


@dataclass(slots=True)
class _Running:
    engine: SimulatedEngine
    devices: frozenset[int]
    speed: float = 1.0
    burst: Burst | None = None
    done_s: float = 0.0
    """How much of the burst is done, in time that it would take alone."""

    @property
    def left_s(self) -> float:
        assert self.burst is not None
        return self.burst.steps * self.burst.cost.duration_s - self.done_s

    def shorten(self) -> None:
        """End the burst with the step that is running."""
        assert self.burst is not None
        step_s = self.burst.cost.duration_s
        started_steps = ceil((self.done_s - _ROUNDING_S) / step_s)
        self.burst.steps = min(self.burst.steps, max(1, started_steps))


class Gpus:
    """GPUs and the engines on them. Times are given by the caller and never go back."""

    def __init__(
        self,
        engines: Sequence[SimulatedEngine],
        sharing: Sharing = "time-sliced",
        devices: Sequence[Collection[int]] | None = None,
    ) -> None:
        """`devices`: of each engine the GPUs that its ranks are on; None: all on one."""
        places = [(0,)] * len(engines) if devices is None else devices
        self._running = [
            _Running(engine, frozenset(place))
            for engine, place in zip(engines, places, strict=True)
        ]
        self._sharing = sharing
        self._now = 0.0

    def next_s(self) -> float | None:
        """When the next burst ends; None while all engines are idle."""
        seconds = [running.left_s / running.speed for running in self._running if running.burst]
        return self._now + min(seconds) if seconds else None

    def run(self, now: float) -> list[SimulatedRequest]:
        """Move on to `now`, which is not beyond `next_s`; the requests that are complete.

        To be called also when requests were submitted or cancelled: their engine then plans again
        after the running step.
        """
        complete: list[SimulatedRequest] = []
        for running in self._running:
            if running.burst:
                running.done_s += (now - self._now) * running.speed
                running.engine.totals.busy_s += now - self._now
        self._now = now
        for running in self._running:
            if running.burst and running.engine.disturbed:
                running.shorten()
            if running.burst and running.left_s <= _ROUNDING_S:
                complete += running.engine.finish(running.burst)
                running.burst = None
            if not running.burst and (burst := running.engine.plan()):
                running.burst, running.done_s = burst, 0.0
        busy = [running for running in self._running if running.burst]
        for running in busy:
            running.speed = min(self._speed(device, busy) for device in running.devices)
        return complete

    def _speed(self, device: int, busy: Sequence[_Running]) -> float:
        costs = [r.burst.cost for r in busy if r.burst and device in r.devices]
        if len(costs) < 2:
            return 1.0
        if self._sharing == "time-sliced":
            return 1.0 / len(costs)
        compute = sum(cost.compute_s / cost.duration_s for cost in costs)
        memory = sum(cost.memory_s / cost.duration_s for cost in costs)
        return 1.0 / max(1.0, compute, memory)
