"""The session of a program that runs an event loop: engines at hand, searches submitted to them."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from tts.build.errors import ConfigError, DatasetError, SessionError
from tts.build.owner import Owner
from tts.build.server_kinds import ServerKind
from tts.build.spec import Deployment
from tts.build.tokenizer import Message
from tts.endpoints.base import Generator, ScoreCall, Verifier
from tts.endpoints.functions import RewardFunction, TextFunction, name_of, require_endpoints
from tts.endpoints.routing import RoutingPolicy
from tts.grading import Grader
from tts.problem import Problem
from tts.prompting import Models
from tts.scheduling import Policy
from tts.serving.server.loading import Loading

from . import requests
from .arguments import SolveOptions, check_arguments, config_of
from .engines import Engines, not_open
from .outbox import Outbox, streamed
from .plan import Grading, Plan, check_length, check_lengths, findable, load_checked
from .progress import RunProgress
from .questions import (
    Asked,
    Question,
    as_problem,
    as_problems,
    in_turn,
    problems_in_turn,
    require_several,
)
from .replicas import Replicas
from .result import Result, Step
from .run import OpenRun, execute, known_servers, open_run
from .server import while_healthy
from .solver import Solver, open_solver
from .strategy import choose
from .tasks import task_of

T = TypeVar("T")


def silent(line: str) -> None:
    """Says nothing."""


def _ignore(loading: Loading) -> None:
    """Shows nothing."""


class AsyncSession:
    """Both engines of a deployment, for as long as the `async with` block lasts.

    Searches that run at the same time share the engines' budgets: the more are submitted together,
    the better the engines are used. Leaving the block cancels what still runs.
    """

    def __init__(
        self,
        deployment: str | Path | Deployment,
        *,
        generator: Generator | TextFunction | None = None,
        verifier: Verifier | RewardFunction | None = None,
        endpoints: Sequence[str] | None = None,
        server: ServerKind | None = None,
        routing: RoutingPolicy | None = None,
        groups: Mapping[str, str] | None = None,
        say: Callable[[str], None] = silent,
        on_loading: Callable[[Loading], None] = _ignore,
    ) -> None:
        """See `Session.open`. Nothing is started before the block; raises ConfigError.

        `routing` chooses among several servers, by default by prefix affinity; `groups` are those
        of the endpoints, for a policy that has any.
        """
        self.deployment = load_checked(deployment).served_by(server)
        addresses = self.deployment.endpoints if endpoints is None else endpoints
        check_arguments(endpoints=addresses, server=server)
        require_endpoints(generator, verifier)
        if addresses and not self.deployment.engines():
            raise ConfigError(
                f"{addresses[0]} is no server of {self.deployment.name}: its engines run already, "
                "and are not served by Triton.",
                hint="Name their servers in the deployment's url.",
            )
        self.source = findable(deployment) if isinstance(deployment, str | Path) else ""
        self._engines = Engines(
            self.deployment,
            (generator, verifier),
            addresses=tuple(dict.fromkeys(addresses)),
            routing=routing,
            groups=groups or {},
            say=say,
            on_loading=on_loading,
        )
        self._say = say
        self._resources = AsyncExitStack()
        self._is_open = False
        self._owner = Owner("This session")
        self._grader: Grader
        self._shared: dict[Policy, Solver] = {}
        self._opening = asyncio.Lock()
        self._solvers: set[Solver] = set()
        self._active: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> Self:
        self._owner = Owner("This session")
        try:
            await self._resources.enter_async_context(self._engines)
            self._grader = await self._resources.enter_async_context(Grader())
        except BaseException:
            await self._resources.aclose()
            raise
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._owner.is_here:
            return  # all of it is the parent's
        self._is_open = False
        for task in self._active:
            task.cancel()
        if self._active:
            await asyncio.wait(self._active)
        await self._resources.aclose()

    async def solve(
        self,
        question: Question,
        *,
        priority: int = 0,
        on_server: Callable[[str], None] | None = None,
        **options: Unpack[SolveOptions],
    ) -> Result:
        """See `Session.solve`.

        `on_server` is called with the name of the server that the search goes to, and again if it
        moves to another.
        """
        check_arguments(priority=priority)
        plan = self._plan((as_problem(question, "solve"),), options)
        on_step, out = options.get("on_step"), options.get("out")
        if out is not None:
            (result,) = [result async for result in self.run(plan, out, on_step=on_step)]
            return result
        solver = await self._shared_solver(plan.policy)
        deadline_s = plan.asked.limits.deadline_s
        with task_of(plan, self._grader, on_step, on_server) as task:
            solving = solver.solve(plan.problems[0], task, priority=priority, deadline_s=deadline_s)
            return await self.watched(solving)

    def solve_many(
        self,
        problems: Iterable[Question] | AsyncIterable[Question],
        *,
        in_flight: int | None = None,
        resume: bool = False,
        repair: bool = False,
        skip_overlong: bool = False,
        **options: Unpack[SolveOptions],
    ) -> AsyncGenerator[Result, None]:
        """See `Session.solve_many`; `problems` may be an asynchronous iterator, too."""
        require_several(problems)
        on_step, out = options.get("on_step"), options.get("out")
        if isinstance(problems, AsyncIterable) or (
            out is None and not isinstance(problems, Sequence)
        ):
            if out is not None:
                raise ConfigError(
                    "A run in a folder needs all of its problems at first.",
                    hint="Give a list of them, or leave out `out`.",
                )
            plan = self._plan((), options, in_flight)
            asked = problems if isinstance(problems, AsyncIterable) else in_turn(problems)
            return self._stream(partial(self._solve_in_turn, plan, asked, on_step, skip_overlong))
        named = as_problems(problems)
        overlong = self._overlong(named) if skip_overlong else {}
        fitting = tuple(problem for problem in named if problem.id not in overlong)
        plan = self._plan(fitting, options, in_flight)
        unasked = [
            Result.unasked(problem, plan.strategy.vote, overlong[problem.id])
            for problem in named
            if problem.id in overlong
        ]
        if not fitting:
            return _each(unasked)
        if out is not None:
            running = self.run(plan, out, resume=resume, repair=repair, on_step=on_step)
        else:
            running = self._stream(partial(self._solve_all, plan, plan.problems, on_step))
        return _each(unasked, running) if unasked else running

    def run(
        self,
        plan: Plan,
        folder: str | Path,
        *,
        resume: bool = False,
        repair: bool = False,
        progress: RunProgress | None = None,
        on_step: Callable[[Step], None] | None = None,
    ) -> AsyncGenerator[Result, None]:
        """Carry out a plan of this deployment in a run folder: each result as it is there.

        With `resume` what the folder holds is continued; its results come first. With `repair`,
        its log is cut off where damage begins. `progress` is kept up to date. Raises a TtsError if
        a problem fails; what was done is saved.
        """
        where = Path(folder).expanduser()
        where = where.absolute() if resume else where.resolve()  # what is there may be no link
        opening = open_run(plan, where, resume=resume, repair=repair, say=self._say)
        progress = progress or RunProgress(len(plan.problems))
        return self._stream(partial(self._execute, opening, progress, on_step))

    def carry_out(
        self,
        run: OpenRun,
        *,
        progress: RunProgress,
        on_step: Callable[[Step], None] | None = None,
    ) -> AsyncGenerator[Result, None]:
        """Carry out a run whose folder was opened before the engines were started."""
        return self._stream(partial(self._execute, nullcontext(run), progress, on_step))

    async def generate(
        self,
        prompt: str | Sequence[Message],
        *,
        n: int = 1,
        max_tokens: int = 256,
        temperature: float = 0.8,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """See `Session.generate`."""
        check_arguments(n=n, max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
        generator, _ = self.endpoints
        writing = requests.generate(
            self.models,
            generator,
            prompt,
            n=n,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
        )
        return await self.watched(writing)

    async def score(self, question: Asked, steps: Sequence[str]) -> list[float]:
        """See `Session.score`."""
        return await self.score_calls(requests.calls_for(self.models, question, steps))

    async def score_calls(self, calls: Sequence[ScoreCall]) -> list[float]:
        """Score requests that are made already (`tts.prompting.context`)."""
        _, verifier = self.endpoints
        return await self.watched(requests.score(verifier, calls))

    @property
    def models(self) -> Models:
        """See `Engines.models`."""
        return self._engines.models

    @property
    def endpoints(self) -> tuple[Generator, Verifier]:
        """See `Engines.endpoints`."""
        self._require_open()
        return self._engines.endpoints

    @property
    def replicas(self) -> Replicas:
        """See `Engines.replicas`."""
        self._require_open()
        return self._engines.replicas

    @property
    def address(self) -> str:
        """See `Engines.address`."""
        self._require_open()
        return self._engines.address

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests that searches have in flight now: generator, verifier."""
        loads = [solver.in_flight for solver in self._solvers]
        return sum(load[0] for load in loads), sum(load[1] for load in loads)

    def stop_searches(self) -> None:
        """End running searches, each with its results so far, as at its deadline.

        Those that have not started are left alone.
        """
        for solver in self._solvers:
            solver.stop()

    @property
    def started_server(self) -> bool:
        """Whether the server that is used was started for this session."""
        server = self._engines.server
        return server is not None and server.started

    async def reset_prefix_caches(self) -> bool:
        """Let what follows find engines as cold as those of a server that has just started.

        False if they stay as they are: TensorRT-LLM's cannot be reset by a request, and none while
        others use them. Raises ServerError or EndpointError if a server is gone.
        """
        return await self.watched(self._engines.reset_prefix_caches())

    async def watched(self, running: Coroutine[Any, Any, T]) -> T:
        """Run to the end while the server is well; ServerError says which part of it died.

        Closing the session cancels it.
        """
        try:
            self._require_open()
        except SessionError:
            running.close()
            raise
        if self._engines.server:
            running = while_healthy(running, self._engines.check)
        task = asyncio.ensure_future(running)
        self._active.add(task)
        task.add_done_callback(self._active.discard)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._is_open or (caller and caller.cancelling()):
                raise
            raise SessionError("The session was closed before this had ended.") from None

    def _require_open(self) -> None:
        self._owner.require()
        if not self._is_open:
            raise not_open()

    def _plan(
        self, problems: tuple[Problem, ...], options: SolveOptions, in_flight: int | None = None
    ) -> Plan:
        """The plan of a call; raises DatasetError for a problem that does not fit the models."""
        self._owner.require()
        config = config_of(options, self.source, in_flight)
        strategy = options.get("strategy", config.strategy)
        plan = Plan(
            config,
            self.deployment,
            problems,
            choose(strategy, self.deployment, config.parameters),
            grading=Grading(options.get("answer_of"), options.get("equal")),
            endpoints={
                role: name_of(given)
                for role, given in zip(("generator", "verifier"), self._engines.own, strict=True)
                if given is not None
            },
        )
        check_lengths(self.models, problems)
        return plan

    def _stream(
        self, start: Callable[[Outbox], Coroutine[Any, Any, None]]
    ) -> AsyncGenerator[Result, None]:
        return streamed(lambda outbox: self.watched(start(outbox)))

    def _overlong(self, problems: Iterable[Problem]) -> dict[str, str]:
        """Why problems do not fit the engines, by the id of each that does not."""
        found = {}
        for problem in problems:
            try:
                check_length(self.models, problem)
            except DatasetError as error:
                found[problem.id] = error.message
        return found

    async def _solve_in_turn(
        self,
        plan: Plan,
        questions: AsyncIterable[Question],
        on_step: Callable[[Step], None] | None,
        skip_overlong: bool,
        outbox: Outbox,
    ) -> None:
        async def fitting() -> AsyncIterator[Problem]:
            async for problem in problems_in_turn(questions):
                if overlong := self._overlong([problem]) if skip_overlong else {}:
                    error = overlong[problem.id]
                    outbox.put(Result.unasked(problem, plan.strategy.vote, error))
                    await outbox.room()
                else:
                    check_length(self.models, problem)
                    yield problem

        await self._solve_all(plan, fitting(), on_step, outbox)

    async def _solve_all(
        self,
        plan: Plan,
        problems: Iterable[Problem] | AsyncIterator[Problem],
        on_step: Callable[[Step], None] | None,
        outbox: Outbox,
    ) -> None:
        solver = await self._shared_solver(plan.policy)
        with task_of(plan, self._grader, on_step) as task:
            time_s = plan.asked.limits.deadline_s
            await solver.solve_all(problems, task, outbox, time_s=time_s)

    async def _execute(
        self,
        opening: AbstractContextManager[OpenRun],
        progress: RunProgress,
        on_step: Callable[[Step], None] | None,
        outbox: Outbox,
    ) -> None:

        with opening as run:
            run = known_servers(run, self._engines.described(run.plan))
            plan = run.plan
            with task_of(plan, self._grader, on_step) as task:
                await execute(
                    run,
                    self.models,
                    self.replicas,
                    task,
                    outbox,
                    progress=progress,
                    opened=self._solvers,
                    steps=self._engines.steps,
                )

    async def _shared_solver(self, policy: Policy) -> Solver:
        """The solver of all searches without a folder that are scheduled in this way."""
        self._require_open()
        async with self._opening:
            if policy not in self._shared:
                opened = open_solver(self.models, self.replicas, policy)
                self._shared[policy] = await self._resources.enter_async_context(opened)
                self._solvers.add(self._shared[policy])
        return self._shared[policy]


async def _each(
    first: Iterable[Result], rest: AsyncGenerator[Result, None] | None = None
) -> AsyncGenerator[Result, None]:
    for result in first:
        yield result
    if rest:
        async with aclosing(rest):
            async for result in rest:
                yield result
