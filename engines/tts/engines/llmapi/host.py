"""Requests on one `LLM`, from one thread with an event loop.

    submit() ─> generate_async ─> output.py ─> on_response()

`LLM` batches, admits and reuses prefixes by itself. Results can be awaited only in the thread of
the event loop in which `generate_async` was called, and Triton's Python backend does not survive
responses sent from several threads: so one thread does both.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from tts.build.errors import EngineError

from ..cancellations import Cancellations, answer_of
from ..generate_request import GenerateRequest
from ..responses import CLOSING, IN_USE, OnResponse, Response, end_process, guarded, unavailable
from .output import Output, is_watched, sampling_arguments

logger = logging.getLogger(__name__)

MAX_REQUESTS = 8192
"""Most requests at a time, running and waiting; more would only take memory."""
HEALTH_CHECK_S = 1.0


@dataclass(slots=True, eq=False)
class _Job:
    ticket: int
    request: GenerateRequest
    on_response: OnResponse
    is_cancelled: Callable[[], bool]
    result: Any = None
    """What `generate_async` gave; None before."""
    answered: bool = False


class LlmHost:
    """One `LLM`, open for requests until `close`. All methods may be called from any thread."""

    def __init__(
        self,
        llm: Any,
        sampling_params: Callable[..., Any],
        *,
        one_sampler: bool,
        labels: tuple[int, ...] = (),
        cancel_check_s: float = 0.1,
        statistics_s: float = 0.5,
        on_active: Callable[[int], None] = lambda active: None,
        on_death: Callable[[], None] = end_process,
    ) -> None:
        """Start the thread. `llm` and `sampling_params` are TensorRT-LLM's, or their like.

        `one_sampler` says of which version, as in `sampling_arguments`.
        `on_active` is called every `statistics_s` seconds with the number of requests that the
        engine has. `on_death` is called when the engine no longer works; by default this process
        ends, which Triton reports and a supervised server survives. Both are called from the
        thread.
        """
        self._llm = llm
        self._sampling_params = sampling_params
        self._one_sampler = one_sampler
        self._labels = labels
        self._jobs: dict[int, _Job] = {}
        self._tickets = count(1)
        self._cancel_check_s = cancel_check_s
        self._statistics_s = statistics_s
        self._on_active = on_active
        self._on_death = on_death
        self._cancellations = Cancellations(cancel_check_s)
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        request: GenerateRequest,
        on_response: OnResponse,
        is_cancelled: Callable[[], bool] = bool,
        *,
        cold: bool = False,
    ) -> int:
        """Hand a request to the engine; returns the ticket that `cancel` takes.

        `on_response` is called from the thread until a response is final, exactly one of which
        comes. `is_cancelled` is polled from the thread. A `cold` request is refused: TensorRT-LLM
        is not known to offer a way to empty the prefix cache. Raises EngineError after `close`.
        """
        job = _Job(next(self._tickets), request, on_response, is_cancelled)
        self.call(partial(self._refuse if cold else self._accept, job))
        return job.ticket

    def submit_all(
        self,
        requests: Sequence[tuple[GenerateRequest, OnResponse]],
        is_cancelled: Callable[[], bool] = bool,
        *,
        cold: bool = False,
    ) -> list[int]:
        """The same for requests of one client: their tickets."""
        return [self.submit(*each, is_cancelled, cold=cold) for each in requests]

    def cancel(self, ticket: int) -> None:
        """End a request with an answer that says so; does nothing if it was answered already."""
        self.call(partial(self._cancel, ticket))

    def call(self, function: Callable[[], None], after_s: float = 0.0) -> None:
        """Run a function in the thread, after so many seconds. Raises EngineError after `close`."""
        try:
            if after_s:
                self._loop.call_soon_threadsafe(self._loop.call_later, after_s, guarded, function)
            else:
                self._loop.call_soon_threadsafe(guarded, function)
        except RuntimeError as error:
            raise EngineError("The engine is closed.") from error

    def close(self) -> None:
        """Fail the remaining requests, end the thread, and shut `LLM` down."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._llm.shutdown()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for work in (self._poll_cancellations(), self._publish(), self._watch_health()):
            self._start(work)
        self._loop.run_forever()
        self._closing = True
        for job in self._jobs.values():
            if not job.answered:
                self._answer(job, CLOSING)
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the loop itself keeps only a weak reference
        task.add_done_callback(self._tasks.discard)

    def _accept(self, job: _Job) -> None:
        full = f"{MAX_REQUESTS} requests are in this engine, as many as may; send it later"
        if self._closing or len(self._jobs) >= MAX_REQUESTS:
            self._answer(job, CLOSING if self._closing else unavailable(full))
            return
        self._jobs[job.ticket] = job
        self._cancellations.add(job.ticket, job.is_cancelled)
        self._start(self._serve(job))

    def _refuse(self, job: _Job) -> None:
        self._answer(job, IN_USE)

    async def _serve(self, job: _Job) -> None:
        """Answer one request; it stays a job until the engine has let go of it."""
        output = Output(job.request, self._labels)
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

    def _advance(self, job: _Job, output: Output, result: Any) -> None:
        response = output.advance(result.outputs[0], finished=result.finished)
        if response is None:
            return
        self._answer(job, response)
        if response.final and not result.finished:
            result.abort()  # a stop word that the engine does not know has ended it

    def _answer(self, job: _Job, response: Response) -> None:
        if response.final:
            job.answered = True
            self._cancellations.discard(job.ticket)
        guarded(job.on_response, response)

    def _cancel(self, ticket: int) -> None:
        job = self._jobs.get(ticket)
        if job is None or job.answered:
            return
        self._answer(job, Response([], log_probs=[], finish_reason="cancelled"))
        if job.result is not None:
            guarded(job.result.abort)

    async def _poll_cancellations(self) -> None:
        while True:
            if (ticket := self._cancellations.ask()) is not None:
                self._cancel(ticket)
            due_s = self._cancellations.due_s()
            most_s = self._cancel_check_s  # a request that comes meanwhile is not due before
            await asyncio.sleep(most_s if due_s is None else min(due_s, most_s))

    async def _publish(self) -> None:
        while True:
            guarded(self._on_active, len(self._jobs))
            await asyncio.sleep(self._statistics_s)

    async def _watch_health(self) -> None:
        # what trtllm-serve asks; not every version has it
        is_healthy = getattr(self._llm, "_check_health", None)
        while is_healthy is not None:
            if not answer_of(is_healthy):
                logger.error("the engine has died; this model ends with it")
                self._on_death()
                return
            await asyncio.sleep(HEALTH_CHECK_S)
