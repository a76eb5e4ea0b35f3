"""Both endpoints on simulated engines: what a call answers, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tts.build.tokenizer import Ids
from tts.endpoints.base import GenerateCall, ScoreCall, VerifierResult
from tts.engines.simulated import Engine, Gpus, Request
from tts.runs.replay import Script

from .text import END_ID

# What arrives at the same moment shares a step: so long does an idle engine wait for more.
_GATHER_S = 1e-6


@dataclass(eq=False)
class Server:
    """GPUs on the event loop's clock, and the one process in front of them.

    `call_s` is what the orchestrator's processor is busy with each call (token ids, gRPC): calls
    queue for it. A cancelled call stops on the engine `cancel_s` later.
    """

    gpus: Sequence[Gpus]
    call_s: float
    cancel_s: float
    busy_s: float = 0.0
    """Time that the orchestrator's processor has spent on calls."""
    _futures: dict[Request, asyncio.Future[None]] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None
    _free_at: float = 0.0

    async def serve(self, engines: Sequence[Engine], request: Request) -> None:
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
            loop.call_later(self.cancel_s, self._cancel, engine, request)
            raise
        finally:
            del self._futures[request]

    def _cancel(self, engine: Engine, request: Request) -> None:
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

    server: Server
    engines: Sequence[Engine]
    script: Script

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator."""
        ids = self.script.generate(call)
        answer = [*ids, END_ID] if self.script.ended(call, ids) else ids
        request = Request(call.input_ids, _as_ids(answer), call.max_new_tokens)
        await self.server.serve(self.engines, request)
        return ids


@dataclass(frozen=True)
class SimulatedVerifier:
    """See endpoints.Verifier."""

    server: Server
    engines: Sequence[Engine]
    script: Script

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        request = Request(call.input_ids, _as_ids([END_ID]), 1)
        await self.server.serve(self.engines, request)
        return VerifierResult(self.script.score(call.input_ids))


def _as_ids(tokens: Sequence[int]) -> Ids:
    return np.asarray(tokens, dtype=np.int32)
