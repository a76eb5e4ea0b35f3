"""The engine host: in-flight batching over OpenVINO's pipeline, from one engine thread.

    submit() ─> inbox ─> books (admission.py) ─> pipeline.step() ─> generation.py ─> on_response()

Only the engine thread touches the pipeline and only it calls back, because the pipeline is not
thread-safe and Triton's Python backend does not survive responses sent from several threads.
A request that fails takes no other with it; a step that fails takes down the requests that were
active, and the pipeline is opened anew for the queue.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from tts.build.errors import EngineError

from .admission import Admission
from .engine_config import EngineConfig
from .generation import Generation
from .pipeline import add_request, open_pipeline
from .requests import GenerateRequest, Limits, Response
from .statistics import IterationLog, Statistics

logger = logging.getLogger(__name__)

OnResponse = Callable[[Response], None]


@dataclass(slots=True)
class _Job:
    ticket: int
    request: GenerateRequest
    on_response: OnResponse
    is_cancelled: Callable[[], bool]
    generation: Generation | None = None  # none until it is in the pipeline


class EngineHost:
    """One engine, open for requests until `close`. All methods may be called from any thread."""

    def __init__(
        self,
        engine_dir: Path,
        config: EngineConfig,
        limits: Limits,
        *,
        threads: int = 1,
        cancel_check_s: float = 0.1,
        statistics_s: float = 0.1,
        on_statistics: Callable[[Statistics], None] | None = None,
        iteration_log: Path | None = None,
    ) -> None:
        """Open the engine and start its thread.

        `on_statistics` is called from the engine thread, at most every `statistics_s` seconds and
        whenever the engine falls idle. Raises EngineError if the engine cannot be opened.
        """
        self.limits = limits
        self._labels = config.label_token_ids or ()
        if len(self._labels) not in (0, 2):
            raise EngineError(f"{engine_dir} has {len(self._labels)} labels; a verifier has two.")
        self._open = partial(open_pipeline, engine_dir, config, limits, threads)
        try:
            self._pipeline: Any = self._open()
        except Exception as error:  # the library raises bare RuntimeError
            raise EngineError(f"The engine in {engine_dir} cannot be opened: {error}") from error
        self._books = Admission(
            blocks=limits.blocks, block_size=limits.block_size, max_active=limits.max_active
        )
        self._waiting: dict[int, _Job] = {}
        self._active: dict[int, _Job] = {}
        self._leaving: list[int] = []  # ended by us: their blocks are free after the next step
        self._tickets = count(1)
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._cancel_check_s = cancel_check_s
        self._next_cancel_check = 0.0
        self._statistics = Statistics()
        self._statistics_s = statistics_s
        self._next_statistics = 0.0
        self._on_statistics = on_statistics
        self._log = IterationLog(iteration_log)
        self._requests_total = self._input_total = self._output_total = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        request: GenerateRequest,
        on_response: OnResponse,
        is_cancelled: Callable[[], bool] = bool,
    ) -> int:
        """Queue a request; returns the ticket that `cancel` takes.

        `on_response` is called from the engine thread until a response is final, exactly one of
        which comes. `is_cancelled` is polled from the engine thread. Raises EngineError after
        `close`.
        """
        if self._closed:
            raise EngineError("The engine is closed.")
        job = _Job(next(self._tickets), request, on_response, is_cancelled)
        self._inbox.put(partial(self._accept, job))
        return job.ticket

    def cancel(self, ticket: int) -> None:
        """End a request with the tokens it has; does nothing if it ended already."""
        self._inbox.put(partial(self._cancel, ticket))

    def call(self, function: Callable[[], None]) -> None:
        """Run a function in the engine thread, between two steps."""
        self._inbox.put(function)

    def statistics(self) -> Statistics:
        """The last iteration."""
        return self._statistics

    def close(self) -> None:
        """Fail what is left, then end the engine thread and wait for it."""
        self._closed = True
        self._inbox.put(None)
        self._thread.join()

    # ---- the engine thread -------------------------------------------------------------------

    def _run(self) -> None:
        while self._drain():
            self._admit()
            if self._busy:
                try:
                    self._step()
                    self._check_cancellations()
                except Exception as error:  # the library raises bare RuntimeError
                    self._recover(error)
        for job in [*self._active.values(), *self._waiting.values()]:
            self._fail(job, "the engine is shutting down")
        self._log.close()
        self._pipeline = None

    @property
    def _busy(self) -> bool:
        return self._books.active > 0  # what is leaving is still in the books

    def _drain(self) -> bool:
        """Do what the inbox says, waiting for it while there is nothing else; False to end."""
        try:
            command = self._inbox.get(block=not self._busy)
            while command is not None:
                _guarded(command)
                command = self._inbox.get(block=False)
        except queue.Empty:
            return True
        return False

    def _accept(self, job: _Job) -> None:
        try:
            self._books.enqueue(job.ticket, job.request.tokens)
        except ValueError as error:  # larger than the pool
            _guarded(partial(job.on_response, Response([], error=str(error))))
        else:
            self._waiting[job.ticket] = job

    def _admit(self) -> None:
        for ticket in self._books.admit():
            job = self._active[ticket] = self._waiting.pop(ticket)
            try:
                if self._pipeline is None:
                    self._pipeline = self._open()
                log_probs = job.request.return_log_probs or bool(self._labels)
                handle = add_request(self._pipeline, ticket, job.request, log_probs=log_probs)
            except Exception as error:
                self._fail(job, f"the pipeline refused the request: {error}")
            else:
                job.generation = Generation(job.request, handle, self._labels)

    def _step(self) -> None:
        self._pipeline.step()
        self._release_leaving()
        generating = context_tokens = 0
        for job in list(self._active.values()):
            generation = job.generation
            assert generation is not None  # or it would have failed in _admit
            was_started = generation.started
            response = generation.advance()
            if was_started:
                generating += 1
            elif generation.started:
                context_tokens += len(job.request.input_ids)
            if response is not None:
                self._respond(job, response)
        self._record(generating, context_tokens)

    def _respond(self, job: _Job, response: Response) -> None:
        self._output_total += len(response.token_ids)
        if response.final:
            self._requests_total += 1
            self._input_total += len(job.request.input_ids)
            self._active.pop(job.ticket, None) or self._waiting.pop(job.ticket)
            if job.generation is not None and job.generation.stopped:
                self._leaving.append(job.ticket)
            else:
                self._books.release(job.ticket)
        _guarded(partial(job.on_response, response))

    def _fail(self, job: _Job, reason: str) -> None:
        self._respond(job, Response([], error=reason))

    def _cancel(self, ticket: int) -> None:
        if job := self._waiting.get(ticket):
            self._respond(job, Response([], log_probs=[], finish_reason="cancelled"))
        elif (job := self._active.get(ticket)) and job.generation:
            self._respond(job, job.generation.cancel())

    def _check_cancellations(self) -> None:
        now = time.monotonic()
        if now < self._next_cancel_check:
            return
        self._next_cancel_check = now + self._cancel_check_s
        for job in [*self._active.values(), *self._waiting.values()]:
            if job.is_cancelled():
                self._cancel(job.ticket)

    def _recover(self, error: Exception) -> None:
        """A failed step poisons the pipeline: fail what was in it and open a new one."""
        logger.error("a step failed, opening the engine again: %s", error)
        self._release_leaving()
        for job in list(self._active.values()):
            job.generation = None  # gone with its pipeline
            self._fail(job, f"the engine failed: {error}")
        self._pipeline = None
        try:
            self._pipeline = self._open()
            self._record(0, 0)
        except Exception:  # _admit tries again
            logger.exception("the engine cannot be opened again")

    def _release_leaving(self) -> None:
        for ticket in self._leaving:
            self._books.release(ticket)
        self._leaving.clear()

    def _record(self, generating: int, context_tokens: int) -> None:
        metrics = self._pipeline.get_metrics()
        scheduled = metrics.scheduled_requests
        generating = min(generating, scheduled)
        self._statistics = Statistics(
            iteration=self._statistics.iteration + 1,
            timestamp=time.time(),
            active=len(self._active) + len(self._waiting),
            queued=len(self._waiting),
            scheduled=scheduled,
            context_requests=scheduled - generating,
            generation_requests=generating,
            context_tokens=context_tokens,
            blocks_used=self._blocks_used(),
            blocks_reserved=self._books.reserved,
            requests_total=self._requests_total,
            input_tokens_total=self._input_total,
            output_tokens_total=self._output_total,
        )
        if self._log:
            self._log.write(self._statistics)
        if not self._busy:
            self._rest()
        self._publish()

    def _rest(self) -> None:
        """Fallen idle: show that nothing runs, with the pipeline's own count of used blocks."""
        self._log.flush()
        self._pipeline.step()  # an empty step: metrics are taken in the middle of a step
        self._statistics = replace(
            self._statistics,
            scheduled=0,
            context_requests=0,
            generation_requests=0,
            context_tokens=0,
            blocks_used=self._blocks_used(),
        )

    def _blocks_used(self) -> int:
        return round(float(self._pipeline.get_metrics().cache_usage) / 100 * self.limits.blocks)

    def _publish(self) -> None:
        now = time.monotonic()
        if self._busy and now < self._next_statistics:
            return
        self._next_statistics = now + self._statistics_s
        if self._on_statistics is not None:
            _guarded(partial(self._on_statistics, self._statistics))


def _guarded(function: Callable[[], None]) -> None:
    """Run foreign code in the engine thread; its errors are logged and go no further."""
    try:
        function()
    except Exception:
        logger.exception("a callback of the engine host failed")
