"""Problems in, results out: a driver, what is counted of its events, and the grading."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from tts.build.errors import TtsError
from tts.compat.aio import BaseExceptionGroup, TaskGroup
from tts.driver import Driver
from tts.endpoints.base import Generator, Verifier
from tts.grading import Equality
from tts.problem import Problem
from tts.prompting import Models
from tts.runlog.events import Event
from tts.runlog.log import RunLog
from tts.runlog.resume import ResumedWork
from tts.scheduling import Policy
from tts.search import BudgetedSearch, Generated, NodePath, Scored, Search

from .functions import answer_form_of
from .outbox import Outbox
from .outcome import Outcome, judged_outcome
from .plan import Grading
from .progress import RunProgress
from .result import Result, Step
from .strategy import ChosenStrategy
from .usage import Meter

AHEAD = 256
"""Problems that wait in the driver; the others are not handed over yet, and cost nothing."""


@dataclass(frozen=True)
class Task:
    """What is done with each problem."""

    strategy: ChosenStrategy
    seed: int
    equality: Equality
    grading: Grading = field(default_factory=Grading)
    on_step: Callable[[Step], None] | None = None
    budget_tokens: int | None = None
    """Generated tokens that a problem's tree may hold; None: any number."""


class Solver:
    """Solves problems on two endpoints, any number at a time. Made by `open_solver`."""

    def __init__(self, driver: Driver, journal: _Journal) -> None:
        self.driver = driver
        self._journal = journal
        self._names: set[str] = set()

    async def solve(
        self,
        problem: Problem,
        task: Task,
        *,
        priority: int = 0,
        deadline_s: float | None = None,
        time_s: float | None = None,
        resumed: ResumedWork | None = None,
        on_start: Callable[[], None] = lambda: None,
    ) -> Result:
        """Solve one problem; it is submitted before the first wait, and cancelled with the call.

        `on_start` is called when its search starts. `deadline_s` counts from this call and may end
        it without a result (DeadlineExceeded); `time_s` counts from the start of its search, which
        it ends with what is there. Raises the TtsError that ended it.
        """
        strategy, grading = task.strategy, task.grading
        form = answer_form_of(grading.answer_of, grading.equal)
        name = self._unused_name(problem.id)
        steps = _Steps(problem, task.on_step) if task.on_step else None
        timers: list[asyncio.TimerHandle] = []

        def begin() -> Search:
            on_start()
            search = strategy.new_search(problem, task.seed, form)
            if task.budget_tokens is not None:
                search = BudgetedSearch(search, task.budget_tokens)
            if time_s is not None:
                loop = asyncio.get_running_loop()
                timers.append(loop.call_later(time_s, self.driver.stop, submission))
            if steps:
                steps.search = search
            return search

        submission = self.driver.submit(
            replace(problem, id=name),
            begin,
            priority=priority,
            deadline_s=deadline_s,
            resumed=resumed,
            on_result=steps.tell if steps else None,
        )
        try:
            found = (await submission).result
            optional = strategy.factory is not None
            outcome = await judged_outcome(
                problem,
                found,
                strategy.vote,
                task.equality,
                grading,
                scores_optional=optional,
                literal=strategy.literal,
            )
            now = self._journal.clock()
            usage = self._journal.meter.take(name, now, outcome.completion_tokens)
        finally:
            for timer in timers:
                timer.cancel()
            submission.cancel()
            self._journal.meter.forget(name)
            self._names.discard(name)
        self._journal.solved(outcome, now)
        return outcome.result(usage)

    async def solve_all(
        self,
        problems: Iterable[Problem],
        task: Task,
        outbox: Outbox,
        *,
        resumed: dict[str, ResumedWork] | None = None,
        time_s: float | None = None,
        progress: RunProgress | None = None,
    ) -> None:
        """Solve problems, oldest first, and hand each result over when it is there.

        `resumed` is what there is of begun problems; `progress` is kept up to date. The first that
        fails ends the others, and its error is raised. `time_s` is that of `solve`.
        """
        resumed = resumed or {}
        waiting = asyncio.Semaphore(AHEAD)

        async def one(problem: Problem) -> None:
            waits = True

            def starts() -> None:
                nonlocal waits
                if waits:
                    waits = False
                    waiting.release()

            try:
                result = await self.solve(
                    problem,
                    task,
                    resumed=resumed.pop(problem.id, None),
                    time_s=time_s,
                    on_start=starts,
                )
                if progress:
                    progress.count(result.correct)
                outbox.put(result)
            finally:
                starts()

        try:
            async with TaskGroup() as run:
                watch = run.create_task(self._journal.watch())
                async with TaskGroup() as group:
                    for problem in problems:
                        await waiting.acquire()
                        await outbox.room()
                        group.create_task(one(problem))
                watch.cancel()
        except BaseExceptionGroup as failures:
            raise _most_telling(failures) from failures

    def _unused_name(self, name: str) -> str:
        """A problem's id as the driver's events say it: of two at a time each has its own."""
        unused, count = name, 1
        while unused in self._names:
            count += 1
            unused = f"{name} ({count})"
        self._names.add(unused)
        return unused


@asynccontextmanager
async def open_solver(
    models: Models,
    generator: Generator,
    verifier: Verifier,
    policy: Policy,
    log: RunLog | None = None,
    meter: Meter | None = None,
) -> AsyncIterator[Solver]:
    """A solver on two endpoints; with a log every event goes there too, on its clock.

    `meter` has counted what earlier sessions of the run did. What is not solved at the end is
    cancelled on the engines.
    """
    journal = _Journal(log, meter or Meter())
    async with Driver(
        models, generator, verifier, policy, record=journal.record, clock=journal.clock
    ) as driver:
        yield Solver(driver, journal)


class _Journal:
    """Where the driver's events go: they are counted, and with a log written there."""

    def __init__(self, log: RunLog | None, meter: Meter) -> None:
        self.meter = meter
        self.clock = log.clock if log else time.monotonic
        self._log = log
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def record(self, event: Event) -> None:
        """Take one event; a log that cannot be written ends the run, not this call."""
        self.meter.add(event)
        if self._log and not self._failure.done():
            try:
                self._log.write(event)
            except TtsError as error:
                self._failure.set_exception(error)
                self._failure.exception()  # seen, whether or not somebody watches

    def solved(self, outcome: Outcome, now: float) -> None:
        """A problem has its outcome: it is on disk when this returns."""
        if self._log:
            self._log.write(outcome.event(now))
            self._log.sync()

    async def watch(self) -> None:
        """Wait for ever; raises RunError when the log cannot be written."""
        await asyncio.shield(self._failure)


class _Steps:
    """What a search is told, as steps for the program's callback."""

    def __init__(self, problem: Problem, on_step: Callable[[Step], None]) -> None:
        self.search: Search | None = None
        self._problem = problem
        self._on_step = on_step
        self._texts: dict[NodePath, str] = {}

    def tell(self, result: Generated | Scored) -> None:
        """A step was written, or scored."""
        if isinstance(result, Scored):
            self._step(result.node, result.score)
            return
        node = result.node
        for thought in result.thoughts:
            self._texts[node] = thought.text
            self._step(node, None)
            node = (*node, 0)

    def _step(self, node: NodePath, score: float | None) -> None:
        tree = self.search.tree if self.search else None
        self._on_step(Step(self._problem, node, self._texts[node], score, tree))


def _most_telling(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure to show of those that ended a run together: a TtsError if there is one."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [failures]
    while pending:
        failure = pending.pop(0)
        if isinstance(failure, BaseExceptionGroup):
            pending.extend(failure.exceptions)
        else:
            leaves.append(failure)
    return next((leaf for leaf in leaves if isinstance(leaf, TtsError)), leaves[0])
