"""Sends jobs to the two endpoints as requests, cancels them, and reports each once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from tts.endpoints.base import REST_S, Generator, Verifier, VerifierResult
from tts.prompting import Context
from tts.prompting.writing import Written
from tts.scheduling import Job, Prefetch, Scheduler, WorkKind
from tts.search import Expand, Score, Scored, quantise

from .generation import prefill, write
from .records import CancelReason, EndedRequest, IdleWatch, JobAnswer, MeanLoad, TakeRecord

Reply = Written | VerifierResult | None
"""What came of an expansion, of a score, or of a prefetch."""


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
        counts_rest: bool,
    ) -> None:
        self.record = record
        self.clock = clock
        self._generator = generator
        self._verifier = verifier
        self._scheduler = scheduler
        self._on_end = on_end
        self._counts_rest = counts_rest
        self._loads = (MeanLoad(), MeanLoad())
        self._idle = IdleWatch(record)
        self._in_flight: defaultdict[int, dict[Job, asyncio.Task[None]]] = defaultdict(dict)
        """The jobs in flight, with their tasks, by the number of their problem."""
        self._leaving: dict[Job, tuple[asyncio.Task[None], CancelReason]] = {}
        """The jobs that were cancelled and whose tasks are still ending."""

    def send(self, job: Job, context: Context) -> None:
        """Start a request for a node of this context."""
        request = self._request(job, context, job.kind)
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

    async def wait_for_requests(self, problem: int) -> None:
        """Wait until the cancelled requests of a problem have ended, as long as they may take."""
        leaving = [task for job, (task, _) in self._leaving.items() if job.problem == problem]
        if leaving:
            await asyncio.wait(leaving, timeout=REST_S)

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
        self._idle.end(self.clock())

    async def _request(self, job: Job, context: Context, kind: WorkKind) -> None:
        # `kind` is what it is sent as; it may be promoted before this begins
        scheduler, work = self._scheduler, job.work
        began, in_flight = self.clock(), scheduler.in_flight
        engine = 0 if job.generates else 1
        before = self._loads[engine].update(began, in_flight[engine])  # request-seconds so far
        report = EndedRequest(
            *(context.problem.id, work, kind, job.tokens, in_flight, began), reused=job.reused
        )
        reply: Reply = None

        def count(tokens: int) -> None:
            report.tokens += tokens

        end: JobAnswer | Exception = None
        try:
            reply = await self._reply(work, context, count)
            if isinstance(reply, Written):
                end = reply.thoughts
            elif reply:
                end = Scored(work.node, quantise(reply.score), reply.tokens)
        except asyncio.CancelledError:
            if job not in self._leaving:  # not by us: the event loop is shutting down
                self._give_back(job)
                raise
        except Exception as failure:
            end = failure
        report.ended_at = now = self.clock()
        if job in self._leaving:
            report.cancelled = self._leaving[job][1]
            self.record(report)
            return
        self._give_back(job)
        if not isinstance(end, Exception):
            if reply:
                report.answer, report.tokens = end, reply.tokens
                if isinstance(reply, VerifierResult):
                    report.no_verdict, report.critique = reply.no_verdict, reply.critique
                if now > began:
                    seconds = now - began
                    after = self._loads[engine].update(now, scheduler.in_flight[engine])
                    scheduler.learn(job, (after - before) / seconds, reply.tokens, seconds)
            self.record(report)
        self._on_end(job, end)

    def _reply(
        self, work: Expand | Score | Prefetch, context: Context, count: Callable[[int], None]
    ) -> Awaitable[Reply]:
        if isinstance(work, Score):
            return self._verifier.score(context.score_call(work.node))
        if isinstance(work, Prefetch):
            return prefill(self._generator, context)
        return write(self._generator, context, work, count if self._counts_rest else None)

    def _give_back(self, job: Job) -> None:
        jobs = self._in_flight[job.problem]
        del jobs[job]
        if not jobs:
            del self._in_flight[job.problem]
        self._scheduler.end(job)
