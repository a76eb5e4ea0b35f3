"""One engine: its queue, its batch and its steps, with in-flight batching and chunked prefill.

A step advances every generating request by a token and fills up to `max_num_tokens` with prompt
tokens, oldest request first. As long as nothing arrives or ends, steps are alike: they are planned
together, as a burst.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tts.base.errors import RequestError
from tts.build.tensorrt.step_time import StepCost, StepLoad, StepTime

from .kv_cache import BlockLease, PagedCache

if TYPE_CHECKING:
    from tts.build.tokenizer import Ids


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
