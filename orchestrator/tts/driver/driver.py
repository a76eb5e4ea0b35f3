"""Runs searches on two engines: the loop between the searches, the scheduler and the endpoints.

    submit ──► queued ──► ProblemRun ──jobs──► Scheduler ──_pump──► Dispatcher ──► endpoints
                              ▲                                         │
                              └── take_in ◄── _take_step ◄── _on_end ◄──┘

A driver takes problems at any time. After every event the pump asks the scheduler what to do next,
and does it. A failed request ends its own problem; the others continue.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Self

from tts.base.errors import DeadlineExceeded, SearchError
from tts.endpoints.base import Generator, Verifier
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.scheduling import Job, Policy, Scheduler
from tts.search import Generated, ResumedWork, Scored, Search, SearchResult

from .dispatcher import Dispatcher
from .problem_run import ProblemRun
from .records import JobAnswer, Submission, TakeRecord
from .speculation import Trust, best_guesses


class Driver:
    """Solves problems on two endpoints; an async context manager.

    Leaving it cancels unsolved problems, and waits until nothing is in flight.
    """

    def __init__(
        self,
        models: Models,
        generator: Generator,
        verifier: Verifier,
        policy: Policy,
        *,
        record: TakeRecord,
        clock: Callable[[], float] = time.monotonic,
        counts_rest: bool = False,
    ) -> None:
        """`record` takes every record and must not raise; `clock` gives their times, in seconds.

        With `counts_rest` a cancelled request lasts until its engine has said what it has written.
        """
        self._models = models
        self._scheduler = Scheduler(policy)
        self._clock = clock
        self._dispatcher = Dispatcher(
            *(generator, verifier, self._scheduler),
            record=record,
            clock=clock,
            on_end=self._on_end,
            counts_rest=counts_rest,
        )
        self._trust: defaultdict[type[Search], Trust] = defaultdict(Trust)
        """How far the guesses of each kind of search have come true."""
        self._queued: list[tuple[int, int, Submission]] = []
        """A heap: the highest priority first, then the oldest."""
        self._running: dict[int, ProblemRun] = {}
        self._submitted = 0
        self._due: asyncio.Handle | None = None
        """A pump that is about to be made for what was submitted or answered."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        running = [run.submission for run in self._running.values()]
        for submission in [each for *_, each in self._queued] + running:
            submission.cancel()
        await asyncio.sleep(0)  # the outcomes' callbacks cancel the requests
        await self._dispatcher.aclose()

    @property
    def in_flight(self) -> tuple[int, int]:
        """Number of requests in flight now: of the generator, of the verifier."""
        return self._scheduler.in_flight

    def submit(
        self,
        problem: Problem,
        new_search: Callable[[], Search],
        *,
        priority: int = 0,
        deadline_s: float | None = None,
        resumed: ResumedWork | None = None,
        on_result: Callable[[Generated | Scored], None] | None = None,
    ) -> Submission:
        """Take in a problem; higher priorities go first, then older problems.

        `new_search` is called when the problem starts. `deadline_s` counts from now: then `stop`
        ends it, with DeadlineExceeded if it has no completion. `resumed` holds the results of an
        interrupted run. `on_result` is called with each result that the search receives.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[SearchResult] = loop.create_future()
        number = self._submitted
        self._submitted += 1
        submission = Submission(
            number, problem, new_search, priority, resumed or ResumedWork(), on_result, outcome
        )
        outcome.add_done_callback(partial(self._on_outcome, number))
        if deadline_s is not None:
            late = DeadlineExceeded(
                f"Problem {problem.id} was not solved within {deadline_s:g} s.",
                hint="Give it more time, or a smaller n.",
            )
            timer = loop.call_later(deadline_s, partial(self.stop, submission, late=late))
            outcome.add_done_callback(lambda _: timer.cancel())
        heapq.heappush(self._queued, (-priority, number, submission))
        self._pump_soon()
        return submission

    def stop(self, submission: Submission, *, late: DeadlineExceeded | None = None) -> None:
        """End a running search with its result so far; a queued one is left alone.

        `late` is the error that ends one without a completion, a queued one among them.
        """
        end: SearchResult | Exception | None = late
        if submission.search and not submission.done:
            try:
                stopped = replace(submission.search.stop(), limit="deadline")
                if late is None or stopped.completions:
                    end = stopped
            except Exception as error:  # of a strategy that the user has written
                end = error
        if end:
            self._settle(submission, end)
            self._pump()

    async def wait_for_requests(self, submission: Submission) -> None:
        """Wait until the requests of a problem that has ended have ended, too."""
        await asyncio.sleep(0)  # the outcome's callbacks cancel them
        await self._dispatcher.wait_for_requests(submission.number)

    def _pump_soon(self) -> None:
        """Pump once for all that is submitted or answered together."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Start problems and send jobs until the scheduler wants no more; then, guesses."""
        self._due = None
        now, scheduler = self._clock(), self._scheduler
        send: list[Job] = []
        self._start_problems()
        while jobs := scheduler.take():
            send += jobs
            self._start_problems()
        for job in scheduler.spare_slots.overdrawn():
            self._running[job.problem].speculation.give_up(job)
            self._dispatcher.cancel(job, "slot")
        guesses = best_guesses(run.speculation for run in self._running.values())
        generating = any(job.generates for job in send)
        for job in scheduler.spare_slots.take(guesses, generating=generating):
            self._running[job.problem].speculation.add(job)
            send.append(job)
        for job in send:  # last, when the guesses in their way are cancelled
            self._dispatcher.send(job, self._running[job.problem].context)
        self._dispatcher.observe_load(now)
        self._end_what_hangs()

    def _start_problems(self) -> None:
        """Start queued problems while the scheduler wants more."""
        while self._queued:
            submission = self._queued[0][2]
            if not submission.done and not self._scheduler.wants_problem(submission.priority):
                return
            heapq.heappop(self._queued)
            if not submission.done:
                self._start(submission)

    def _start(self, submission: Submission) -> None:
        try:
            context = Context.of(self._models, submission.problem)
            search = submission.search = submission.new_search()
            trust = self._trust[type(search)]
            run = ProblemRun(submission, context, search, self._scheduler, self._dispatcher, trust)
        except Exception as error:
            self._settle(submission, error)
            return
        self._running[submission.number] = run
        self._take_step(run, run.start)

    def _on_end(self, job: Job, answer: JobAnswer | Exception) -> None:
        """Tell a search the answer of its request, or end it if the request failed."""
        run = self._running[job.problem]
        if isinstance(answer, Exception):
            self._settle(run.submission, answer)
        else:
            self._take_step(run, partial(run.take_in, job, answer))
        self._pump_soon()

    def _take_step(self, run: ProblemRun, step: Callable[[], None]) -> None:
        """Let a search take a step, and end its problem if it is done or fails."""
        try:
            step()
            result = run.search.result()
        except Exception as error:  # of a strategy or a callback that the user has written
            self._settle(run.submission, error)
            return
        if result:
            self._settle(run.submission, result)

    def _settle(self, submission: Submission, end: SearchResult | Exception) -> None:
        """End a problem with its result or an error, unless it has ended."""
        self._close(submission.number)
        if submission.done:
            return
        if isinstance(end, Exception):
            submission.outcome.set_exception(end)
        else:
            submission.outcome.set_result(end)

    def _close(self, number: int) -> None:
        """Cancel and forget what a problem that runs no more still wanted."""
        if self._running.pop(number, None):
            self._scheduler.end_problem(number)
            self._dispatcher.cancel_all(number)

    def _on_outcome(self, number: int, outcome: asyncio.Future[SearchResult]) -> None:
        """Forget a submission that has a result or an error, or that its caller has cancelled."""
        if not outcome.cancelled():
            outcome.exception()  # so that nobody is warned of an error that was not awaited
        if number in self._running:
            self._close(number)
            self._pump()

    def _end_what_hangs(self) -> None:
        """End searches that want nothing and are not done: they would wait for ever."""
        if self._scheduler.in_flight == (0, 0) and self._scheduler.pending == (0, 0):
            for run in list(self._running.values()):
                what = f"The search of problem {run.problem_id} has no result and asks for nothing."
                hint = "A strategy must ask for work until it has its result."
                self._settle(run.submission, SearchError(what, hint=hint))
                self._pump_soon()  # others may wait for its place
