"""The engine: in-flight batching over OpenVINO's pipeline, which is not thread-safe, in one loop.

    inbox ─> accept() ─> admission.py ─> pipeline.step() ─> Generation ─> on_response()

A request that fails affects no other; a step that fails fails the active requests, and the pipeline
is opened again for those in the queue. A request with a guide waits until that is compiled
(grammar_compiler.py), and no other request does. An engine that ran short of memory ends with its
process.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tts.base.errors import EngineError
from tts.build.manifest import EngineConfig
from tts.build.openvino.transformer import WEIGHTS_FILE

from .admission import BlockAdmission
from .generate_request import MAX_WAITING_BYTES, EngineLimits, GenerateRequest
from .grammar_compiler import GrammarCompiler
from .memory import ShortOfMemoryError, release_mapped, require_memory
from .pipeline import (
    Generation,
    add_request,
    asking_for_score,
    guide_tokenizer,
    open_pipeline,
    score_outputs,
)
from .prefix_cache import PrefixCache, prefix_hashes
from .responses import CLOSING, IN_USE, OnResponse, Response, guarded, unavailable
from .statistics import Statistics, StepRecorder
from .wire import Guide

logger = logging.getLogger(__name__)

EngineCommand = Callable[[], None]

MAX_WAITING = 8192
"""Most requests that wait for a slot in the engine; more would only take memory."""
MAX_READ = 1 << 14
"""Most characters of guides with which requests start in a step, on average: the step reads each,
at about 1 MB/s, also those that are compiled."""
_LOOK_S = 0.005
"""Between two looks at grammars that are being compiled, of an engine that does nothing else."""


class CommandInbox(Protocol):
    """Where an engine's commands come from; `queue.SimpleQueue` is one."""

    def get(self, block: bool, timeout: float | None) -> EngineCommand | None:
        """The next command, or None to end; raises queue.Empty if there is none (in time)."""

    def empty(self) -> bool:
        """Whether `get` would have to wait."""


@dataclass(slots=True)
class _Job:
    ticket: int
    request: GenerateRequest
    on_response: OnResponse
    hashes: list[int]
    """Hashes of its prompt's prefixes, later of its output's too; empty without KV reuse."""
    generation: Generation | None = None  # none until it is in the pipeline


class Engine:
    """One engine. All methods belong to the thread that runs it."""

    def __init__(
        self,
        engine_dir: Path,
        config: EngineConfig,
        limits: EngineLimits,
        *,
        threads: int = 1,
        statistics_s: float = 0.1,
        on_statistics: Callable[[Statistics], None] = lambda statistics: None,
        iteration_log: Path | None = None,
        vocabulary: Sequence[bytes] | None = None,
    ) -> None:
        """Open the engine.

        `vocabulary` is the text of every token, for an engine that takes guides.
        `on_statistics` is called at most every `statistics_s` seconds.
        Raises EngineError if the engine cannot be opened.
        """
        self.limits = limits
        self._scores = score_outputs(config)
        self._grammars: GrammarCompiler | None = None
        self._uncompiled: dict[Guide, list[int]] = {}
        """Tickets of the requests that wait for a grammar."""
        tokenizer = None
        if vocabulary is not None and (end_id := limits.guided_end_id) is not None:
            tokenizer = guide_tokenizer(vocabulary, config.output_vocab_size, end_id)
            self._grammars = GrammarCompiler(tokenizer, config.output_vocab_size, end_id)
        self._load = partial(
            open_pipeline, engine_dir, config, threads=threads, tokenizer=tokenizer
        )
        self._weights = (engine_dir / WEIGHTS_FILE).resolve()
        self._weights_in_use = True  # until a first step has made the runtime's own copies
        try:
            self._pipeline: Any = self._open()
        except Exception as error:  # the library raises bare RuntimeError
            raise EngineError(f"The engine in {engine_dir} cannot be opened: {error}") from error
        self._admission = BlockAdmission(
            blocks=limits.blocks, block_size=limits.block_size, max_active=limits.max_active
        )
        self._forget_prefixes()
        self._read = 0
        """Characters of guides that steps have read ahead of `MAX_READ` for each."""
        self._waiting: dict[int, _Job] = {}
        self._waiting_bytes = 0
        self._active: dict[int, _Job] = {}
        self._leaving: dict[int, _Job] = {}  # answered, but still holding their blocks
        publish = partial(guarded, on_statistics)
        self._recorder = StepRecorder(iteration_log, statistics_s, publish)

    def run(self, inbox: CommandInbox) -> None:
        """Do what comes in until the inbox ends, then fail the requests that remain.

        Raises ShortOfMemoryError if the engine must not be used any more; nothing is answered then.
        """
        while self._drain(inbox):
            self._admit()
            if self._busy:
                try:
                    self._step()
                except ShortOfMemoryError:
                    raise
                except Exception as error:  # the library raises bare RuntimeError
                    self._recover(error)
        for job in [*self._active.values(), *self._waiting.values()]:
            self._respond(job, CLOSING)
        self._recorder.close()
        self._pipeline = None
        if self._grammars:
            self._grammars.close()

    def accept(
        self, ticket: int, request: GenerateRequest, on_response: OnResponse, *, cold: bool = False
    ) -> None:
        """Queue a request. `on_response` is called until a response is final, as exactly one is.

        `ticket` is the request's alone. With `cold` the prefix cache is emptied before; the request
        is refused if others are in the engine.
        """
        if cold and not self.reset_prefix_cache():
            guarded(on_response, IN_USE)
            return
        if request.return_generation_logits and self.limits.writes:
            request = asking_for_score(request, self.limits.vocab_size)
        size, waiting = request.bytes_waiting, len(self._waiting)
        if waiting >= MAX_WAITING or self._waiting_bytes + size > MAX_WAITING_BYTES:
            full = f"{waiting} requests wait for this engine, as many as may; send it later"
            guarded(on_response, unavailable(full))
            return
        guide = request.guide if self._grammars else None
        try:
            self._admission.enqueue(ticket, request.tokens, held_back=guide is not None)
        except ValueError as error:  # larger than the pool
            guarded(on_response, Response([], error=str(error)))
        else:
            if guide is not None:
                self._uncompiled.setdefault(guide, []).append(ticket)
            hashes = prefix_hashes(request.input_ids) if self.limits.kv_reuse else []
            self._waiting[ticket] = _Job(ticket, request, on_response, hashes)
            self._waiting_bytes += size

    def cancel(self, ticket: int) -> None:
        """End a request with the tokens it has; does nothing if it ended already."""
        cancelled = Response([], log_probs=[], finish_reason="cancelled")
        if job := self._waiting.get(ticket):
            self._respond(job, cancelled)
        elif (job := self._active.get(ticket)) and job.generation:
            self._respond(job, job.generation.cancel())

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache; False if requests are queued or active.

        The library cannot empty it, so the pipeline is dropped and the next request opens another.
        """
        if self._busy or self._waiting:
            return False
        self._pipeline = None
        self._forget_prefixes()
        return True

    def statistics(self) -> Statistics:
        """The last iteration."""
        return self._recorder.current

    def _forget_prefixes(self) -> None:
        limits = self.limits
        self._prefixes = PrefixCache(
            blocks=limits.blocks,
            block_size=limits.block_size,
            step_tokens=limits.max_num_tokens,
        )
        self._departures: set[int] = set()
        """Requests that have left the pipeline in this step."""

    @property
    def _busy(self) -> bool:
        return self._admission.active > 0  # requests that are leaving still count

    def _drain(self, inbox: CommandInbox) -> bool:
        """Run the commands in the inbox, waiting for one if idle; False at its end."""
        idle = not (self._busy or self._waiting)
        due_s = self._recorder.rest_due_s() if idle else None
        if compiles := bool(self._uncompiled) and not self._busy:
            due_s = _LOOK_S
        try:
            command = inbox.get(idle or compiles, due_s)
        except queue.Empty:
            if idle:
                self._rest()
            return True
        while command is not None:
            guarded(command)
            if inbox.empty():  # nobody else takes from it
                return True
            command = inbox.get(True, None)
        return False

    def _taken(self, ticket: int) -> _Job:
        """A job, no longer waiting."""
        job = self._waiting.pop(ticket)
        self._waiting_bytes -= job.request.bytes_waiting
        return job

    def _let_compiled_in(self) -> None:
        """Let requests start whose grammars are there, and refuse those whose cannot be."""
        for guide in list(self._uncompiled):
            assert self._grammars is not None
            compiled = self._grammars.compiled(guide)
            if not compiled.done():
                continue
            for ticket in self._uncompiled.pop(guide):
                if error := compiled.exception():
                    refused = f"the guide does not compile: {error}"
                    self._respond(self._waiting[ticket], Response([], error=refused))
                else:
                    self._admission.let_in(ticket)

    def _admit(self) -> None:
        self._let_compiled_in()
        self._read = max(0, self._read - MAX_READ)
        for ticket in self._admission.admit(self._may_enter):
            job = self._active[ticket] = self._taken(ticket)
            try:
                if self._pipeline is None:
                    self._pipeline = self._open()
                    self._weights_in_use = True
            except ShortOfMemoryError:
                raise
            except Exception as error:
                self._respond(job, unavailable(f"the engine cannot be opened again: {error}"))
                continue
            try:
                scores = self._scores if self._is_score(job.request) else None
                log_probs = job.request.return_log_probs or scores is not None
                handle = add_request(
                    self._pipeline,
                    ticket,
                    job.request,
                    self.limits.vocab_size,
                    log_probs=log_probs,
                )
            except Exception as error:
                refused = f"the pipeline refused the request: {error}"
                self._respond(job, Response([], error=refused))
            else:
                job.generation = Generation(job.request, handle, scores)
                if self.limits.kv_reuse:
                    self._prefixes.enter(ticket, job.hashes)

    def _is_score(self, request: GenerateRequest) -> bool:
        return request.return_generation_logits or not self.limits.writes

    def _open(self) -> Any:
        pipeline = self._load(limits=self.limits)
        require_memory()
        return pipeline

    def _may_enter(self, ticket: int) -> bool:
        job = self._waiting[ticket]
        size = len(job.request.guide.text) if job.request.guide else 0
        if self._read and self._read + size > MAX_READ:
            return False
        if self.limits.kv_reuse and not self._prefixes.may_enter(job.hashes):
            return False
        self._read += size
        return True

    def _step(self) -> None:
        began = time.monotonic()
        self._pipeline.step()
        require_memory()
        seconds = time.monotonic() - began
        if self._weights_in_use:
            release_mapped(self._weights)
            self._weights_in_use = False
        if self.limits.kv_reuse:
            self._replicate_step()
        for job in list(self._leaving.values()):
            if job.generation is None or job.generation.has_left():
                del self._leaving[job.ticket]
                self._release(job)
        generating = started = context_tokens = 0
        answers: list[tuple[_Job, Response]] = []
        for job in list(self._active.values()):
            generation = job.generation
            assert generation is not None  # or it would have failed in _admit
            was_started = generation.started
            response = generation.advance()
            if was_started:
                generating += 1
            elif generation.started:
                started += 1
                context_tokens += len(job.request.input_ids)
            if response is not None:
                self._book(job, response)
                answers.append((job, response))
            if self.limits.kv_reuse and generation.started and job.ticket in self._active:
                self._prefixes.extend(job.ticket, generation.generated)
        self._prefixes.leave(self._departures)
        self._departures.clear()
        for job, response in answers:  # before what is published, which counts them
            guarded(job.on_response, response)
        self._record(seconds, generating, started, context_tokens)

    def _replicate_step(self) -> None:
        leaving = self._leaving.values()
        self._prefixes.step([j.ticket for j in leaving if j.generation and j.generation.stopped])
        if self._prefixes.in_use != self._blocks_used(self._pipeline.get_metrics()):
            # another version of the library; without reuse every result is right
            self.limits = replace(self.limits, kv_reuse=False)
            raise EngineError("its prefix cache does something unknown, and is switched off")

    def _respond(self, job: _Job, response: Response) -> None:
        self._book(job, response)
        guarded(job.on_response, response)

    def _book(self, job: _Job, response: Response) -> None:
        """Count a response; after a final one the job is over."""
        self._recorder.count(output_tokens=len(response.token_ids))
        if response.final:
            self._recorder.count(requests=1, input_tokens=len(job.request.input_ids))
            self._active.pop(job.ticket, None) or self._taken(job.ticket)
            if job.generation is not None and job.generation.ended_early:
                self._leaving[job.ticket] = job
            else:
                self._release(job)

    def _release(self, job: _Job) -> None:
        """Give back all that a request held; it has left the queue or the pipeline."""
        self._admission.release(job.ticket)
        guide = job.request.guide
        if guide and job.ticket in (waiting := self._uncompiled.get(guide, [])):
            waiting.remove(job.ticket)
            if not waiting and self._grammars:
                del self._uncompiled[guide]
                self._grammars.drop(guide)
        self._departures.add(job.ticket)

    def _recover(self, error: Exception) -> None:
        """A failed step leaves the pipeline unusable: fail what was in it, and drop it."""
        logger.error("a step failed, the engine will be opened again: %s", error)
        for ticket in self._leaving:
            self._admission.release(ticket)
        self._leaving.clear()
        self._forget_prefixes()
        for job in list(self._active.values()):
            job.generation = None  # gone with its pipeline
            self._respond(job, unavailable(f"the engine failed: {error}"))
        self._pipeline = None  # opened by the next request; its prefixes are lost

    def _record(self, seconds: float, generating: int, started: int, context_tokens: int) -> None:
        metrics = self._pipeline.get_metrics()
        scheduled = metrics.scheduled_requests
        generating = min(generating, scheduled)
        self._recorder.record(
            seconds=seconds,
            active=len(self._active) + len(self._waiting),
            queued=len(self._waiting),
            scheduled=scheduled,
            context_requests=scheduled - generating,
            generation_requests=generating,
            context_tokens=context_tokens,
            generated_tokens=generating + started,
            blocks_used=self._blocks_used(metrics),
            blocks_reserved=self._admission.reserved,
            prefixes_missed=self._prefixes.missed,
        )

    def _rest(self) -> None:
        if self._pipeline is None:
            self._recorder.rest(0)
            return
        try:
            self._pipeline.step()  # an empty one: metrics are those of the middle of a step
            self._recorder.rest(self._blocks_used(self._pipeline.get_metrics()))
        except Exception as error:
            self._recover(error)

    def _blocks_used(self, metrics: Any) -> int:
        return round(float(metrics.cache_usage) / 100 * self.limits.blocks)
