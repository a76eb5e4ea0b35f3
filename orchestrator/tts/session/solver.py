"""Solves the problems of a plan: a search for each, the grading of its result, its handing over."""

from __future__ import annotations

import asyncio
import logging
from asyncio import TaskGroup
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Self

from tts.base.errors import EndpointTimeout
from tts.endpoints.together import first_failure
from tts.fleet.drivers import Drivers
from tts.grading import Equality
from tts.grading.code import (
    CodeGrader,
    CodeTests,
    ProblemTests,
    SameText,
    extract_code,
    require_tests,
    tests_of,
)
from tts.grading.votes import answer_form_of
from tts.problem import Problem
from tts.runs.state import ProblemState
from tts.search import (
    Allocation,
    BudgetedSearch,
    Decision,
    Generated,
    NodePath,
    Scored,
    Search,
    Thought,
)

from .functions import AnswerFunction, FunctionGrader, checked_answer_of
from .outcome import JudgedResult, judged_outcome
from .plan import Plan
from .result import Result, RunProgress, Step, Usage
from .strategy import is_own

AHEAD = 256
"""Problems that wait in the driver; the others are not handed over yet, and cost nothing."""

UNREAD = 256
"""Results that wait for the program; as long as there are so many, no further problem is taken."""

logger = logging.getLogger(__name__)
_NONE: Mapping[str, Decision] = {}


class Outbox:
    """A queue that slows its producer down: a result holds a whole tree."""

    def __init__(self) -> None:
        self._results: asyncio.Queue[Result | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, result: Result) -> None:
        """Hand a result over."""
        self._results.put_nowait(result)
        if self._results.qsize() >= UNREAD:
            self._room.clear()

    def close(self) -> None:
        """No more results come."""
        self._results.put_nowait(None)

    async def get(self) -> Result | None:
        """The oldest result, when it is there; None after the last."""
        result = await self._results.get()
        if self._results.qsize() < UNREAD:
            self._room.set()
        return result

    def pop(self) -> Result | None:
        """The oldest result, which is there."""
        return self._results.get_nowait()

    async def room(self) -> None:
        """Wait until the program has taken enough of the results."""
        await self._room.wait()

    async def paced(self, problems: AsyncIterator[Problem]) -> AsyncIterator[Problem]:
        """The problems, each taken when there is room."""
        await self.room()
        async for problem in problems:
            yield problem
            await self.room()


async def streamed(
    start: Callable[[Outbox], Coroutine[Any, Any, None]],
) -> AsyncGenerator[Result, None]:
    """Yield results as they are handed over; leaving early cancels the rest and waits for it."""
    outbox = Outbox()
    work = asyncio.ensure_future(start(outbox))
    work.add_done_callback(lambda _: outbox.close())
    try:
        while (result := await outbox.get()) is not None:
            yield result
        await work
    finally:
        work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # seen: it has been raised above, or nobody waits for it


class Solver:
    """Solves problems as a plan says; a context manager, which ends the thread of `equal`."""

    def __init__(self, plan: Plan, drivers: Drivers, grader: Equality) -> None:
        """`grader` compares answers unless the program has a function of its own."""
        self._allocation = None
        """Advises each problem of a strategy that takes advice."""
        if plan.strategy.takes_advice:
            names = [problem.id for problem in plan.problems]
            budget = plan.request.limits.budget_tokens
            self._allocation = Allocation(budget, names, plan.calibration)
        self._plan = plan
        self._drivers = drivers
        answer_of = plan.answer_of or plan.strategy.ballot.answer_of
        self._answer_of = checked_answer_of(answer_of) if is_own(answer_of) else answer_of
        self._code = CodeGrader(plan.deployment.execution)
        self._own_grader = FunctionGrader(plan.equal) if plan.equal else None
        self._equality = self._own_grader or grader
        self._decided = asyncio.Event()
        """Set whenever a problem is solved."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._own_grader:
            self._own_grader.close()

    def in_order(
        self, problems: Sequence[Problem], decisions: Mapping[str, Decision] = _NONE
    ) -> Sequence[Problem]:
        """The problems in the order in which to solve them; `decisions` came of those solved."""
        allocation = self._allocation
        if allocation is None:
            return problems
        for name, decision in decisions.items():
            allocation.observe(name, decision)
        return sorted(problems, key=lambda problem: allocation.stage(problem.id))

    async def solve(self, problem: Problem, *, priority: int = 0) -> Result:
        """Solve one problem; it is submitted before the first wait, and cancelled with the call.

        The plan's deadline counts from this call, and may end it without a result
        (DeadlineExceeded). Raises the TtsError that ended it.
        """
        deadline_s = self._plan.request.limits.deadline_s
        now = asyncio.get_running_loop().time()
        ends = None if deadline_s is None else now + deadline_s
        outcome, usage = await self._solve(problem, priority=priority, ends=ends)
        return outcome.result(usage)

    async def solve_all(
        self,
        problems: AsyncIterator[Problem],
        on_result: Callable[[Result], None] | None = None,
        *,
        resumed: dict[str, ProblemState] | None = None,
        progress: RunProgress | None = None,
    ) -> None:
        """Solve problems, oldest first; `on_result` gets each result as soon as it is ready.

        A problem is taken when fewer than AHEAD wait to be started. The plan's deadline counts from
        the start of a search, which then ends with its result so far. `resumed` is what there is of
        begun problems. The first that fails ends the others, and its error is raised; but a late
        answer is the failure of its problem alone, raised when the others are solved, unless the
        engines have answered nothing since another problem failed so, or later problems depend on
        it (`auto`).
        """
        resumed, journal = resumed or {}, self._drivers.journal
        late: dict[str, EndpointTimeout] = {}
        answers_before = -1
        waiting = asyncio.Semaphore(AHEAD)

        async def solve(problem: Problem, place: ExitStack) -> None:
            nonlocal answers_before
            try:
                with place:
                    outcome, usage = await self._solve(
                        problem,
                        time_s=self._plan.request.limits.deadline_s,
                        resumed=resumed.pop(problem.id, None),
                        on_start=place.close,
                    )
            except EndpointTimeout as error:
                if self._plan.strategy.takes_advice or journal.answers == answers_before:
                    raise
                answers_before = journal.answers
                late[problem.id] = error
                logger.warning("problem %s has failed: %s", problem.id, error.message)
                return
            if progress:
                progress.count(outcome.correct)
            if on_result:
                on_result(outcome.result(usage))

        try:
            async with TaskGroup() as run:
                watch = run.create_task(journal.watch())
                async with TaskGroup() as group:
                    while True:
                        await waiting.acquire()
                        problem = await anext(problems, None)
                        if problem is None:
                            break
                        while self._allocation and not self._allocation.ready(problem.id):
                            self._decided.clear()  # others decide its advice
                            await self._decided.wait()
                        place = ExitStack()
                        place.callback(waiting.release)
                        group.create_task(solve(problem, place))
                watch.cancel()
        except BaseExceptionGroup as failures:
            failure = first_failure(failures)
            raise failure from failure.__cause__  # such as an error of the user's own code
        if late:
            error = next(iter(late.values()))
            names = f"{', '.join(late):.100}"
            failed = "1 problem has" if len(late) == 1 else f"{len(late)} problems have"
            raise EndpointTimeout(f"{failed} failed ({names}): {error.message}", error.hint)

    async def _solve(
        self,
        problem: Problem,
        *,
        priority: int = 0,
        ends: float | None = None,
        time_s: float | None = None,
        resumed: ProblemState | None = None,
        on_start: Callable[[], None] = lambda: None,
    ) -> tuple[JudgedResult, Usage]:
        """The outcome of a problem, which is in the log by then; options: see Drivers.search."""
        plan, journal = self._plan, self._drivers.journal
        with ExitStack() as ending:
            tests = self._tests(problem)
            if tests:
                require_tests(problem.extra, f"Problem {problem.id}")
                await asyncio.to_thread(self._code.require)
            name = journal.begin(problem.id, resumed, keep=self._drivers.replicas.elastic)
            ending.callback(journal.end, name)
            steps = StepCallbacks(problem, plan.on_step) if plan.on_step else None
            whole = False
            try:
                result = await self._drivers.search(
                    replace(problem, id=name),
                    lambda: self._new_search(problem, steps),
                    priority=priority,
                    ends=ends,
                    time_s=time_s,
                    on_start=on_start,
                    on_server=plan.on_server,
                    on_result=steps.receive if steps else None,
                    counts_all=plan.on_usage is not None,
                )
                whole = result.limit is None
            finally:
                if plan.on_usage:
                    work, seconds = journal.work(name, journal.clock())
                    tokens = work.generated_tokens + (0 if whole else journal.cut_tokens(name))
                    plan.on_usage(replace(Usage.of(work, 0, seconds), generated_tokens=tokens))
            graded = tests and ProblemTests(self._code, tests, problem.answer, problem.id)
            outcome = await judged_outcome(
                plan,
                problem,
                result,
                SameText() if tests else self._equality,
                self._reader(problem),
                graded.passes if graded else None,
            )
            now = journal.clock()
            work, seconds = journal.work(name, now)
            ending.close()
            journal.write(outcome.event(now))
            if self._allocation and result.decision:
                self._allocation.observe(problem.id, result.decision)
                self._decided.set()
            return outcome, Usage.of(work, outcome.completion_tokens, seconds)

    def _new_search(self, problem: Problem, steps: StepCallbacks | None) -> Search:
        """A new search for a problem, within its budget."""
        request = self._plan.request
        advice = self._allocation.advice(problem.id) if self._allocation else None
        by_text = bool(self._plan.equal or self._tests(problem))
        form = answer_form_of(self._reader(problem), by_text=by_text)
        search = self._plan.strategy.new_search(
            *(problem, request.seed, form, advice, self._plan.calibration),
            consecutive=self._plan.deployment.consecutive_seeds,
        )
        tokens = advice.cap if advice else request.limits.budget_tokens
        if tokens is not None:
            writes = self._plan.deployment.critiques > 0
            search = BudgetedSearch(search, tokens, guesses=advice is not None, writes=writes)
        if steps:
            steps.search = search
        return search

    def _tests(self, problem: Problem) -> CodeTests | None:
        """The tests that say whether its answers are right; none where the program says it."""
        return None if self._plan.equal else tests_of(problem.extra)

    def _reader(self, problem: Problem) -> AnswerFunction:
        """What takes the answer out of a completion."""
        tests = self._tests(problem)
        if tests is None or self._plan.answer_of:
            return self._answer_of
        return partial(extract_code, names=tests.names)


class StepCallbacks:
    """Steps for the program's callback, from the results of one search."""

    def __init__(self, problem: Problem, on_step: Callable[[Step], None]) -> None:
        self.search: Search | None = None
        self._problem = problem
        self._on_step = on_step
        self._thoughts: dict[NodePath, Thought] = {}
        self._scored: set[NodePath] = set()

    def receive(self, result: Generated | Scored) -> None:
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
