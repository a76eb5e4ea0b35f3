"""Sends jobs to the two endpoints as requests, cancels them, and reports each once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tts.base.errors import RequestRefused
from tts.build.spec import ROLES, Role
from tts.endpoints.base import GenerateCall, Generator, NewTokens, Verifier, stream_of
from tts.prompting.writing import Written, writing
from tts.scheduling import Job, Prefetch, Scheduler, WorkKind
from tts.search import ConfidenceWatch, Expand, Score, Scored, Stop, quantise

from .problem_run import ProblemRun
from .records import CancelReason, EndedRequest, IdleEngine, JobAnswer, TakeRecord


class Dispatcher:
    """Sends requests. The answer of each, or its error, goes to `on_end`."""

    def __init__(
        self,
        generator: Generator,
        verifier: Verifier,
        scheduler: Scheduler,
        *,
        record: TakeRecord,
        clock: Callable[[], float],
        on_end: Callable[[Job, JobAnswer | Exception], None],
    ) -> None:
        self._generator = generator
        self._verifier = verifier
        self._scheduler = scheduler
        self._record = record
        self._clock = clock
        self._on_end = on_end
        self._loads = (MeanLoad(), MeanLoad())
        self._idle = IdleWatch(record)
        self._in_flight: defaultdict[int, dict[Job, asyncio.Task[None]]] = defaultdict(dict)
        """The jobs in flight, with their tasks, by the number of their problem."""
        self._leaving: dict[Job, tuple[asyncio.Task[None], CancelReason]] = {}
        """The jobs that were cancelled and whose tasks are still ending."""

    def send(self, run: ProblemRun, job: Job) -> None:
        """Start a request."""
        request = self._request(run, job, job.kind)
        self._in_flight[job.problem][job] = asyncio.create_task(request)

    def cancel(self, job: Job, why: CancelReason) -> None:
        """Cancel a request that was sent; its budget is returned at once."""
        task = self._in_flight[job.problem][job]
        self._give_back(job)
        self._leaving[job] = task, why
        task.add_done_callback(lambda _: self._leaving.pop(job))  # it may never have begun
        task.cancel()

    def cancel_all(self, problem: int) -> None:
        """Cancel the requests that a finished problem still has in flight."""
        for job in list(self._in_flight.get(problem, ())):
            self.cancel(job, "ended")

    def observe_load(self, now: float) -> None:
        """Note how much is in flight and pending on both engines as of `now`."""
        for load, in_flight in zip(self._loads, self._scheduler.in_flight, strict=True):
            load.update(now, in_flight)
        self._idle.update(now, self._scheduler.in_flight, self._scheduler.pending)

    async def aclose(self) -> None:
        """Cancel all requests and wait until they have ended."""
        while tasks := {task for task, _ in self._leaving.values()}.union(
            *(jobs.values() for jobs in self._in_flight.values())
        ):
            await asyncio.wait(tasks)
        self._idle.end(self._clock())

    async def _request(self, run: ProblemRun, job: Job, kind: WorkKind) -> None:
        # `kind` is what it is sent as; it may be promoted before this begins
        sent, in_flight = self._clock(), self._scheduler.in_flight
        engine = 0 if job.generates else 1
        area = self._loads[engine].update(sent, in_flight[engine])
        ended = partial(
            EndedRequest,
            *(run.problem_id, job.work, kind, job.tokens, in_flight, sent),
            reused=job.reused,
        )
        reply: Any = None
        error: Exception | None = None
        try:
            reply = await self._call(run, job.work)
        except asyncio.CancelledError:
            if self._give_back(job):
                raise  # not by us: the event loop is shutting down
        except Exception as failure:
            error = failure
        wanted, done = self._give_back(job), self._clock()
        if not wanted:
            self._record(ended(done, cancelled=self._leaving[job][1]))
            return
        answer: JobAnswer = None
        if error is None:
            if done > sent:
                area = self._loads[engine].update(done, self._scheduler.in_flight[engine]) - area
                if not isinstance(job.work, Prefetch):
                    self._scheduler.learn(job, area / (done - sent), reply.tokens, done - sent)
            try:
                answer = _answer(job.work, reply)
                self._record(ended(done, answer, **_counts(reply)))
            except Exception as failure:  # not what a verifier may answer
                error = failure
        self._on_end(job, error or answer)

    async def _call(self, run: ProblemRun, work: Expand | Score | Prefetch) -> Any:
        """What was written, a VerifierResult, or anything to a prefetch."""
        context = run.context
        if isinstance(work, Score):
            return await self._verifier.score(context.score_call(work.node))
        if isinstance(work, Prefetch):
            prompt = context.generator_ids(())
            return await self._generator.generate(GenerateCall(prompt, 1, 0, 0.0, 1.0, True))
        parts = writing(context, work)
        watch = ConfidenceWatch(work.confidence) if work.confidence else None
        reply: list[int] | None = None  # what starts it; it may take no request at all
        while True:
            try:
                call = parts.send(reply)  # type: ignore[arg-type]
            except StopIteration as end:
                return _with_confidence(end.value, watch) if watch else end.value
            reply = await (self._watched(call, watch) if watch else self._generator.generate(call))

    async def _watched(self, call: GenerateCall, watch: ConfidenceWatch) -> list[int]:
        """The tokens up to where the chain loses its confidence; there the request is cancelled."""
        ids: list[int] = []
        if watch.cut:
            return ids
        call = replace(call, log_probs=True, streaming=watch.ends_chains)
        stream = stream_of(self._generator, call)
        try:
            async for new in stream:
                _require_log_probs(new)
                ids += new.ids[: watch.take(new.log_probs)]
                if watch.cut:
                    break
        finally:
            await stream.aclose()
        return ids

    def _give_back(self, job: Job) -> bool:
        """Give back a job's budget; False if that was done when it was cancelled."""
        jobs = self._in_flight.get(job.problem)
        if jobs is None or jobs.pop(job, None) is None:
            return False
        if not jobs:
            del self._in_flight[job.problem]
        self._scheduler.end(job)
        return True


def _with_confidence(written: Written, watch: ConfidenceWatch) -> Written:
    """What was written, with the confidence of the whole at its end."""
    last = written.thoughts[-1]
    stop = Stop.CUT if watch.cut else last.stop
    last = replace(last, stop=stop, confidence=watch.weakest)
    return replace(written, thoughts=(*written.thoughts[:-1], last))


def _require_log_probs(new: NewTokens) -> None:
    """Raise RequestRefused for tokens without their log-probabilities."""
    if len(new.log_probs) != len(new.ids):
        raise RequestRefused(
            "The generator gives no log-probabilities of the tokens that it draws, which "
            "confidence-vote needs.",
            hint="Take a strategy that does without, such as majority-vote.",
        )


def _answer(work: Expand | Score | Prefetch, reply: Any) -> JobAnswer:
    """A reply as the search takes it."""
    if isinstance(work, Expand):
        return reply.thoughts  # type: ignore[no-any-return]
    if isinstance(work, Score):
        return Scored(work.node, quantise(reply.score), reply.tokens)
    return None


def _counts(reply: Any) -> dict[str, Any]:
    """What a request took, and what a verifier wrote."""
    names = ("tokens", "no_verdict", "critique")
    return {name: getattr(reply, name) for name in names if hasattr(reply, name)}


class IdleWatch:
    """Reports every period in which nothing was in flight on an engine."""

    def __init__(self, record: TakeRecord) -> None:
        """`record` takes an `IdleEngine` when a stretch ends, or its reason changes."""
        self._record = record
        self._idle: dict[Role, tuple[float, str]] = {}

    def update(self, now: float, in_flight: tuple[int, int], pending: tuple[int, int]) -> None:
        """Take in what is in flight and pending on both engines as of `now`, generator first."""
        for place, engine in enumerate(ROLES):
            why = None
            if not in_flight[place]:
                why = reason(pending[place], in_flight[1 - place])
            if engine in self._idle and self._idle[engine][1] != why:
                self._report(engine, now)
            if why:
                self._idle.setdefault(engine, (now, why))

    def end(self, now: float) -> None:
        """End the run."""
        for engine in list(self._idle):
            self._report(engine, now)

    def _report(self, engine: Role, now: float) -> None:
        since, why = self._idle.pop(engine)
        if since < now:
            self._record(IdleEngine(engine, since, now, why))


class MeanLoad:
    """Requests in flight on an engine, averaged over any period."""

    def __init__(self) -> None:
        self._now = 0.0
        self._in_flight = 0
        self._sum = 0.0

    def update(self, now: float, in_flight: int) -> float:
        """Take in how many are in flight as of `now`; returns request-seconds so far."""
        self._sum += self._in_flight * (now - self._now)
        self._now, self._in_flight = now, in_flight
        return self._sum


def reason(pending: int, others: int) -> str:
    """Why an engine idles; `others`: requests in flight on the other engine."""
    if pending:
        return "budget"
    return "dependency" if others else "no work"
