"""The search for one problem, which moves to another server when its own is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from tts.base.errors import EndpointUnavailable
from tts.driver import Driver, Submission
from tts.fleet.drivers import Drivers
from tts.fleet.replicas import FAILURES, Attempts, EnginePair
from tts.problem import Problem
from tts.search import Generated, NodePath, Scored, Search, SearchResult, Thought

from .plan import Plan
from .result import Step

MOST_IN_VAIN = 5
"""A problem that has failed so often in a row per server, without one answer, ends the run."""

logger = logging.getLogger(__name__)


class ProblemSearch:
    """The search for one problem of a plan, on whichever of the servers works."""

    def __init__(
        self,
        drivers: Drivers,
        plan: Plan,
        problem: Problem,
        name: str,
        new_search: Callable[[], Search],
        *,
        priority: int = 0,
        ends: float | None = None,
        time_s: float | None = None,
        on_start: Callable[[], None],
    ) -> None:
        """`name` is the problem's in the journal; `on_start` is called with every start.

        `ends` is when it must be solved, on the loop's clock; `time_s` are seconds from its first
        start, after which it ends with its result so far.
        """
        self._drivers = drivers
        self._on_server = plan.on_server
        self._problem = replace(problem, id=name)
        self._new_search = new_search
        self._priority = priority
        self._ends = ends
        self._time_s = time_s
        self._on_start = on_start
        self._steps = StepCallbacks(problem, plan.on_step) if plan.on_step else None
        self._loop = asyncio.get_running_loop()
        self._started: float | None = None
        self._until_start = ExitStack()
        """What ends when the driver that has it starts it, or loses it."""
        self._until_end = ExitStack()
        self._driver: Driver
        self._submission: Submission

    async def result(self) -> SearchResult:
        """Search on one replica and, when it fails, continue on the next.

        Raises the TtsError that ended it.
        """
        name, replicas, journal = self._problem.id, self._drivers.replicas, self._drivers.journal
        attempts = Attempts(
            replicas,
            most=lambda: MOST_IN_VAIN * len(replicas) if replicas.elastic else 0,
            busy=self._drivers.full,
        )
        while True:
            before = journal.known(name).size
            async with attempts.next() as pair:
                try:
                    return await self._result_on(pair)
                except FAILURES as error:
                    logger.info("problem %s leaves %s: %s", name, pair.name, error.message)
                    if journal.known(name).size > before or self._started is None:
                        attempts.count_anew()
                    raise

    def stop(self) -> None:
        """End it with its result so far; one that is queued is left alone."""
        self._driver.stop(self._submission)

    async def _result_on(self, pair: EnginePair) -> SearchResult:
        """Search on one replica; raises one of FAILURES when it is lost."""
        drivers = self._drivers
        if self._on_server:
            self._on_server(pair.name)
        self._driver = drivers.of(pair)
        self._submission = submission = self._driver.submit(
            self._problem,
            self._begin,
            priority=self._priority,
            deadline_s=None if self._ends is None else max(0.0, self._ends - self._loop.time()),
            resumed=drivers.journal.known(self._problem.id),
            on_result=self._steps.tell if self._steps else None,
        )
        with self._until_end, self._until_start:
            self._until_end.callback(submission.cancel)
            drivers.count_waiting(pair, +1)
            self._until_start.callback(partial(drivers.count_waiting, pair, -1))
            drivers.stops.add(self.stop)
            self._until_end.callback(drivers.stops.discard, self.stop)
            if drivers.replicas.elastic:
                lost = drivers.replicas.lost(pair)
                ends: set[asyncio.Future[Any]] = {submission.outcome, lost}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not submission.done:
                    raise EndpointUnavailable(lost.result().message, lost.result().hint)
            return await submission

    def _begin(self) -> Search:
        """The driver starts it, perhaps once more after another one."""
        self._until_start.close()
        self._on_start()
        if self._started is None:
            self._started = self._loop.time()
        search = self._new_search()
        if self._time_s is not None:
            timer = self._loop.call_at(self._started + self._time_s, self.stop)
            self._until_end.callback(timer.cancel)
        if self._steps:
            self._steps.search = search
        return search


class StepCallbacks:
    """Turns the results of one search into steps for the program's callback."""

    def __init__(self, problem: Problem, on_step: Callable[[Step], None]) -> None:
        self.search: Search | None = None
        self._problem = problem
        self._on_step = on_step
        self._thoughts: dict[NodePath, Thought] = {}
        self._scored: set[NodePath] = set()

    def tell(self, result: Generated | Scored) -> None:
        """Report a written or scored step once; a search that changes servers repeats its steps."""
        if isinstance(result, Scored):
            if result.node not in self._scored:
                self._scored.add(result.node)
                self._step(result.node, result.score)
            return
        node = result.node
        for thought in result.thoughts:
            if node not in self._thoughts:
                self._thoughts[node] = thought
                self._step(node, None)
            node = (*node, 0)

    def _step(self, node: NodePath, score: float | None) -> None:
        tree = self.search.tree if self.search else None
        thought = self._thoughts[node]
        self._on_step(Step(self._problem, node, thought.text, score, tree, thought.thinking))
