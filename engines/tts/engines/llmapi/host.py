"""Requests on one `LLM`, from one event loop.

    accept() ─> generate_async ─> output.py ─> on_response()

`LLM` batches, admits and reuses prefixes by itself. Results can be awaited only in the thread of
the event loop in which `generate_async` was called.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tts.build.errors import EngineError

from ..generate_request import MAX_WAITING_BYTES, GenerateRequest
from ..responses import CLOSING, IN_USE, OnResponse, Response, guarded, unavailable
from .output import LlmOutput, is_watched, sampling_arguments

logger = logging.getLogger(__name__)

MAX_REQUESTS = 8192
"""Most requests at a time, running and waiting; more would only take memory."""
HEALTH_CHECK_S = 1.0


@dataclass(slots=True, eq=False)
class _Job:
    ticket: int
    request: GenerateRequest
    on_response: OnResponse
    result: Any = None
    """What `generate_async` gave; None before."""
    answered: bool = False


class LlmHost:
    """One `LLM`. All methods belong to the thread of the event loop that runs it."""

    def __init__(
        self,
        llm: Any,
        sampling_params: Callable[..., Any],
        *,
        one_sampler: bool,
        labels: Mapping[int, float] = {},
    ) -> None:
        """`llm` and `sampling_params` are TensorRT-LLM's, or their like.

        `labels` are token ids with their weights.
        `one_sampler` says of which version, as in `sampling_arguments`.
        """
        self._llm = llm
        self._sampling_params = sampling_params
        self._one_sampler = one_sampler
        self._labels = labels
        self._jobs: dict[int, _Job] = {}
        self._bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, ended: asyncio.Future[None]) -> None:
        """Serve what is accepted until `ended`; then fail what remains, and shut `LLM` down.

        Raises EngineError as soon as the engine no longer works.
        """
        watching = asyncio.create_task(self._watch_health())
        try:
            await asyncio.wait({watching, ended}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                raise EngineError("The engine has died.")
        finally:
            for job in self._jobs.values():
                if not job.answered:
                    self._answer(job, CLOSING)
            running = {watching, *self._tasks}
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._llm.shutdown()

    def accept(
        self, ticket: int, request: GenerateRequest, on_response: OnResponse, *, cold: bool = False
    ) -> None:
        """Hand a request to the engine; `on_response` is called until a response is final.

        `ticket` is the request's alone. A `cold` request is refused: TensorRT-LLM is not known to
        offer a way to empty the prefix cache.
        """
        job = _Job(ticket, request, on_response)
        count, size = len(self._jobs), request.bytes_waiting
        full = f"{count} requests are in this engine, as many as may; send it later"
        if cold or count >= MAX_REQUESTS or self._bytes + size > MAX_WAITING_BYTES:
            self._answer(job, IN_USE if cold else unavailable(full))
            return
        self._jobs[ticket] = job
        self._bytes += size
        task = asyncio.get_running_loop().create_task(self._serve(job))
        self._tasks.add(task)  # the loop itself keeps only a weak reference
        task.add_done_callback(self._tasks.discard)

    def cancel(self, ticket: int) -> None:
        """End a request with an answer that says so; does nothing if it was answered already."""
        job = self._jobs.get(ticket)
        if job is None or job.answered:
            return
        self._answer(job, Response([], log_probs=[], finish_reason="cancelled"))
        if job.result is not None:
            guarded(job.result.abort)

    async def _serve(self, job: _Job) -> None:
        """Answer one request; it stays a job until the engine has let go of it."""
        output = LlmOutput(job.request, self._labels)
        try:
            if job.answered:  # cancelled before it began
                return
            job.result = self._llm.generate_async(
                job.request.input_ids.tolist(),
                self._sampling_params(
                    **sampling_arguments(job.request, one_sampler=self._one_sampler)
                ),
                streaming=is_watched(job.request, one_sampler=self._one_sampler),
            )
            async for result in job.result:
                if not job.answered:
                    self._advance(job, output, result)
                await asyncio.sleep(0)  # or what has come in meanwhile would keep others waiting
            if not job.answered:
                self._answer(job, unavailable("the engine ended without an answer"))
        except Exception as error:
            # its own matter only, as far as the engine still works: `_watch_health` finds out
            logger.exception("request %d failed", job.ticket)
            if not job.answered:
                self._answer(job, unavailable(f"the engine failed the request: {error}"))
        finally:
            self._jobs.pop(job.ticket, None)
            self._bytes -= job.request.bytes_waiting

    def _advance(self, job: _Job, output: LlmOutput, result: Any) -> None:
        response = output.advance(result.outputs[0], finished=result.finished)
        if response is None:
            return
        self._answer(job, response)
        if response.final and not result.finished:
            result.abort()  # a stop word that the engine does not know has ended it

    def _answer(self, job: _Job, response: Response) -> None:
        job.answered = response.final
        guarded(job.on_response, response)

    async def _watch_health(self) -> None:
        """Ends once the engine no longer works, or cannot say that it does."""
        # what trtllm-serve asks; not every version has it
        is_healthy = getattr(self._llm, "_check_health", lambda: True)
        try:
            while is_healthy():
                await asyncio.sleep(HEALTH_CHECK_S)
        except Exception:
            logger.exception("the engine cannot be asked for its health")
