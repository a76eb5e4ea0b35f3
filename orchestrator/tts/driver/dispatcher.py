"""Jobs as requests on the two endpoints: sent, cancelled, and each recorded once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tts.endpoints.base import GenerateCall, Generator, Verifier
from tts.runlog import events
from tts.scheduling import Job, Prefetch, Scheduler
from tts.search import Expand, Score, Thought, quantise

from .engine_load import Load
from .problem_run import Answer, ProblemRun, Record

WORK_NAMES: dict[type, events.WorkName] = {
    Expand: "expand",
    Score: "score",
    Prefetch: "prefetch",
}
KIND_NAMES: tuple[events.KindName, ...] = ("main", "eager", "speculative")
"""By scheduling.Kind."""


class Dispatcher:
    """Requests in flight. What a request brought, or why it failed, goes to `on_end`."""

    def __init__(
        self,
        generator: Generator,
        verifier: Verifier,
        scheduler: Scheduler,
        *,
        record: Record,
        clock: Callable[[], float],
        on_end: Callable[[ProblemRun, Job, Answer | Exception], None],
    ) -> None:
        self._generator = generator
        self._verifier = verifier
        self._scheduler = scheduler
        self._record = record
        self._clock = clock
        self._on_end = on_end
        self._load = Load()
        self._in_flight: defaultdict[int, dict[Job, asyncio.Task[None]]] = defaultdict(dict)
        """By the number of their problem."""
        self._reasons: dict[Job, str] = {}
        """Why jobs were cancelled whose tasks are not over yet."""
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, run: ProblemRun, job: Job) -> None:
        """Begin a request."""
        task = asyncio.create_task(self._request(run, job, KIND_NAMES[job.kind]))
        self._in_flight[job.problem][job] = task
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._left(job, task))

    def cancel(self, job: Job, why: str) -> None:
        """Cancel a request that was sent; its budget is given back at once."""
        task = self._in_flight[job.problem][job]
        self._give_back(job)
        self._reasons[job] = why
        task.cancel()

    def cancel_all(self, problem: int) -> None:
        """Cancel what a problem that has ended still has in flight."""
        for job in list(self._in_flight.get(problem, ())):
            self.cancel(job, "ended")

    def observe_load(self, now: float) -> None:
        """What is in flight on the generator from `now` on."""
        self._load.update(now, self._scheduler.in_flight[0])

    async def aclose(self) -> None:
        """Wait until every request is over; to be cancelled before."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _request(self, run: ProblemRun, job: Job, kind: events.KindName) -> None:
        # `kind` is what it is sent as; it may be promoted before this begins
        common: dict[str, Any] = {
            "problem": run.problem_id,
            "in_flight": self._scheduler.in_flight,
            "prompt_tokens": job.tokens,
            "sent": self._clock(),
        }
        trigger = self._scheduler.trigger(job)
        answer: Answer | Exception
        try:
            match job.work:
                case Expand():
                    answer, tokens = await self._generate(run, job.work)
                case Score():
                    answer = await self._score(run, job.work)
                case Prefetch():
                    await self._prefetch(run)
                    answer = None
        except asyncio.CancelledError:
            if self._give_back(job):
                raise  # not by us: the event loop is shutting down
            wanted = False
        except Exception as error:
            wanted = self._give_back(job)
            if wanted:
                self._on_end(run, job, error)
                return
        else:
            wanted = self._give_back(job)
        now = self._clock()
        common |= {"t": now, "done": now}
        work = job.work
        if not wanted:
            self._record(
                events.Cancelled(
                    work=WORK_NAMES[type(work)],
                    node=work.node,
                    kind=kind,
                    why=self._reasons[job],
                    trigger=trigger,
                    **common,
                )
            )
            return
        if isinstance(work, Expand):
            assert isinstance(answer, tuple)
            thoughts = events.logged(answer)
            self._record(
                events.Generated(
                    node=work.node, kind=kind, tokens=tokens, thoughts=thoughts, **common
                )
            )
        elif isinstance(work, Score):
            assert isinstance(answer, float)
            self._record(
                events.Scored(
                    node=work.node,
                    kind=kind,
                    score=answer,
                    cached=False,
                    trigger=trigger,
                    **common,
                )
            )
        else:
            self._record(events.Prefetched(**common))
        self._on_end(run, job, answer)

    async def _generate(self, run: ProblemRun, work: Expand) -> tuple[tuple[Thought, ...], int]:
        """The thoughts, and how many tokens the engine gave."""
        parent, sampling = work.node[:-1], work.sampling
        limit = min(sampling.max_tokens, run.context.room(parent))
        call = GenerateCall(
            run.context.generator_ids(parent),
            limit,
            work.seed,
            sampling.temperature,
            sampling.top_p,
            not work.whole,
        )
        began, area = self._clock(), self._area()
        ids = await self._generator.generate(call)
        if took := self._clock() - began:
            self._scheduler.learn((self._area() - area) / took, len(ids), took)
        models = run.context.models
        return models.thoughts(ids, truncated=len(ids) >= limit, whole=work.whole), len(ids)

    async def _score(self, run: ProblemRun, work: Score) -> float:
        result = await self._verifier.score(run.context.score_call(work.node))
        return quantise(result.score)

    async def _prefetch(self, run: ProblemRun) -> None:
        prompt = run.context.generator_ids(())
        await self._generator.generate(GenerateCall(prompt, 1, 0, 0.0, 1.0, True))

    def _area(self) -> float:
        """The generator's load up to now, in request-seconds."""
        return self._load.update(self._clock(), self._scheduler.in_flight[0])

    def _give_back(self, job: Job) -> bool:
        """Give back a job's budget; False if that was done when it was cancelled."""
        jobs = self._in_flight.get(job.problem)
        if jobs is None or jobs.pop(job, None) is None:
            return False
        if not jobs:
            del self._in_flight[job.problem]
        self._scheduler.ended(job)
        return True

    def _left(self, job: Job, task: asyncio.Task[None]) -> None:
        """A job's task is over, perhaps cancelled before it began."""
        self._tasks.discard(task)
        self._give_back(job)
        self._reasons.pop(job, None)
