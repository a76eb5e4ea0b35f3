"""The session of a program that runs an event loop: engines at hand, searches submitted to them."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self, Unpack

from tts.base.choices import ServerKind
from tts.base.errors import ConfigError, DatasetError, SessionError
from tts.base.owner import Owner
from tts.build.spec import ROLES, Deployment
from tts.build.tokenizer import Message
from tts.endpoints.base import Generator, ScoreCall, Verifier, VerifierResult
from tts.endpoints.functions import RewardFunction, TextFunction, name_of, require_endpoints
from tts.fleet.drivers import Drivers
from tts.fleet.engines import Engines, Replacements, open_replicas
from tts.fleet.replicas import Replicas
from tts.fleet.routing import RoutingPolicy
from tts.fleet.server import Work
from tts.grading import Grader
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.runs.run import Run
from tts.scheduling import Policy
from tts.search import Aggregation
from tts.serving.server.triton_log import Loading
from tts.strategies.parameters import scores_answers

from .arguments import SampleOptions, SolveOptions, check_arguments, config_of
from .functions import verifier_of
from .plan import Plan, calibration_of, check_lengths, findable, load_checked
from .questions import (
    Question,
    as_problem,
    as_problems,
    in_turn,
    problems_in_turn,
    require_several,
)
from .result import Result, RunProgress
from .run import (
    OpenRun,
    begin,
    complete,
    logged_drivers,
    logged_results,
    open_run,
    summarised,
)
from .scoring import Candidate, Scorer, generate, ranked, solutions_of
from .solver import Outbox, Solver, streamed
from .strategy import choose


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
        say: Callable[[str], None] | None = None,
        on_loading: Callable[[Loading], None] = lambda loading: None,
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
        self._own: Replacements = generator, verifier
        self._say = say or (lambda line: None)
        self._opening = partial(
            open_replicas,
            addresses=tuple(dict.fromkeys(addresses)),
            routing=routing,
            groups=groups or {},
            say=self._say,
            on_loading=on_loading,
        )
        self._resources = AsyncExitStack()
        self._open: Engines | None = None
        self._owner = Owner("This session")
        self._grader: Grader
        self._shared: dict[Policy, Drivers] = {}
        self._drivers: set[Drivers] = set()
        self._works: set[Work] = set()
        self._scorer: Scorer | None = None

    def load_verifier(self) -> None:
        """Execute the file of the function that scores, if one does and no other was given.

        Only for a deployment that the user has named.
        """
        generator, verifier = self._own
        self._own = generator, verifier_of(self.deployment, verifier)

    async def __aenter__(self) -> Self:
        self._owner = Owner("This session")
        try:
            opening = self._opening(self.deployment, self._own)
            engines = await self._resources.enter_async_context(opening)
            self._grader = await self._resources.enter_async_context(Grader())
        except BaseException:
            await self._resources.aclose()
            raise
        self._open = engines
        return self

    async def __aexit__(self, *error: object) -> None:
        if not self._owner.is_here:
            return  # all of it is the parent's
        self._open = None
        works = [*self._works]
        for work in works:
            work.end(SessionError("The session was closed before this had ended."))
        if works:
            await asyncio.wait([work.over for work in works])
        await self._resources.aclose()

    async def solve(
        self, question: Question, *, priority: int = 0, **options: Unpack[SolveOptions]
    ) -> Result:
        """See `Session.solve`."""
        check_arguments(priority=priority)
        plan = self._plan((as_problem(question, "solve"),), options)
        check_lengths(self.models, plan.problems, plan.strategy.config)
        out = options.get("out")
        if out is not None:
            (result,) = [result async for result in self.run(plan, out)]
            return result
        return await self.solve_planned(plan, priority=priority)

    async def solve_planned(self, plan: Plan, *, priority: int = 0) -> Result:
        """Solve the one problem of a plan of this deployment."""
        (problem,) = plan.problems
        drivers = await self._shared_drivers(plan.policy)
        with Solver(plan, drivers, self._grader) as solver:
            async with self.work():
                return await solver.solve(problem, priority=priority)

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
        out = options.get("out")
        listed: tuple[Problem, ...] = ()
        if isinstance(problems, AsyncIterable):
            if out is not None:
                raise ConfigError(
                    "A run in a folder needs all of its problems at first.",
                    hint="Give a list of them, or leave out `out`.",
                )
            source = problems_in_turn(problems)
        elif out is None and not isinstance(problems, Sequence):
            source = problems_in_turn(in_turn(problems))
        else:
            listed = as_problems(problems)
            source = in_turn(())
        plan = self._plan(listed, options, in_flight)
        if not skip_overlong:
            check_lengths(self.models, listed, plan.strategy.config)
        if out is None and not isinstance(problems, Sequence):
            return streamed(lambda outbox: self._solve_all(plan, outbox, source, skip_overlong))

        def solve(fitting: Plan) -> AsyncGenerator[Result, None]:
            if out is None:
                return streamed(partial(self._solve_all, fitting))
            return self.run(fitting, out, resume=resume, repair=repair)

        return self._fitting(plan, solve) if skip_overlong else solve(plan)

    def run(
        self, plan: Plan, folder: str | Path, *, resume: bool = False, repair: bool = False
    ) -> AsyncGenerator[Result, None]:
        """Run a plan of this deployment in a run folder: each result as it is there.

        With `resume` what the folder holds is continued; its results come first. With `repair`,
        its log is cut off where damage begins. Raises a TtsError if a problem fails; what was done
        is saved.
        """
        where = Path(folder).expanduser()
        where = where.absolute() if resume else where.resolve()  # what is there may be no link
        opening = open_run(plan, where, resume=resume, repair=repair, say=self._say)

        async def start(outbox: Outbox) -> None:
            with opening as run:
                await self.execute(run, RunProgress(len(plan.problems)), outbox)

        return streamed(start)

    async def execute(
        self, run: OpenRun, progress: RunProgress, outbox: Outbox | None = None
    ) -> Run:
        """Solve what remains of a run, in its folder; returns the finished run.

        Its results go to `outbox`, those that are in its log already first. Generations and scores
        of unfinished problems are taken from the log. Raises a TtsError if a problem fails, and
        what was done until then is saved; RunError if a continued run used another model.
        """
        async with self.work() as engines:
            run = begin(run, engines.remotes.engine_records(), progress)
            if outbox and run.has_begun:
                for result in logged_results(run.folder, run.plan.problems, run.plan.strategy.vote):
                    await outbox.room()
                    outbox.put(result)
            if not run.remaining:
                return complete(run)
            async with logged_drivers(run, engines, progress) as drivers:
                self._drivers.add(drivers)
                try:
                    with Solver(run.plan, drivers, self._grader) as solver:
                        problems = in_turn(solver.in_order(run.remaining, run.point.decisions))
                        await solver.solve_all(
                            outbox.paced(problems) if outbox else problems,
                            outbox.put if outbox else None,
                            resumed=run.point.unfinished,
                            progress=progress,
                        )
                finally:
                    self._drivers.discard(drivers)
            return summarised(run)

    async def generate(
        self, prompt: str | Sequence[Message], **options: Unpack[SampleOptions]
    ) -> list[str]:
        """See `Session.generate`."""
        async with self.work() as engines:
            return await generate(engines.models, engines.endpoints[0], prompt, **options)

    async def score(
        self,
        question: Question,
        candidates: Sequence[Candidate],
        *,
        agg_strategy: Aggregation = "last",
    ) -> Result:
        """See `Session.score`."""
        problem, delimiter = as_problem(question, "score"), self.models.step_delimiter
        solutions = solutions_of(problem, candidates, delimiter)
        async with self.work():
            scores = await self.scorer.score(solutions)
        calibration = calibration_of(self.deployment) if self._own[1] is None else None
        return await ranked(solutions, scores, agg_strategy, delimiter, self._grader, calibration)

    @property
    def scorer(self) -> Scorer:
        """Scores solutions with the verifier, whose work in flight all its callers share."""
        if self._scorer is None:
            _, verifier = self.endpoints
            answers_only = self._own[1] is None and scores_answers(self.deployment)
            self._scorer = Scorer(self.models, verifier, answers_only=answers_only)
        return self._scorer

    async def score_calls(self, calls: Sequence[ScoreCall]) -> list[VerifierResult]:
        """Score requests that are made already (`tts.prompting.context`)."""
        async with self.work():
            return await self.scorer.results(calls)

    @property
    def models(self) -> Models:
        """See `Engines.models`."""
        return self._engines.models

    @property
    def endpoints(self) -> tuple[Generator, Verifier]:
        """See `Engines.endpoints`."""
        return self._engines.endpoints

    @property
    def replicas(self) -> Replicas:
        """See `Engines.replicas`."""
        return self._engines.replicas

    @property
    def address(self) -> str:
        """See `Engines.address`."""
        return self._engines.address

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests that searches and `scorer` have in flight now: generator, verifier."""
        loads = [drivers.in_flight for drivers in self._drivers]
        scoring = self._scorer.in_flight if self._scorer else 0
        return sum(load[0] for load in loads), sum(load[1] for load in loads) + scoring

    def stop_searches(self) -> None:
        """End the searches that have started, with their results so far, as at their deadlines."""
        for drivers in self._drivers:
            drivers.stop()

    @property
    def started_server(self) -> bool:
        """Whether a server that is used was started for this session."""
        return any(server.started for server in self._engines.servers)

    async def reset_prefix_caches(self) -> bool:
        """Let what follows find engines as cold as those of a server that has just started.

        False if they stay as they are: TensorRT-LLM's cannot be reset by a request, and none while
        others use them. Raises ServerError or EndpointError if a server is gone.
        """
        async with self.work() as engines:
            return await engines.reset_prefix_caches()

    @asynccontextmanager
    async def work(self) -> AsyncIterator[Engines]:
        """A block of work with the engines, which goes on while the servers are well.

        A ServerError says which part of them died. Closing the session ends it by SessionError.
        """
        engines = self._engines
        work = Work(engines.check if engines.servers else None)
        self._works.add(work)
        try:
            async with work:
                yield engines
        finally:
            self._works.discard(work)

    @property
    def _engines(self) -> Engines:
        """What is open; raises SessionError."""
        self._owner.require()
        if self._open is None:
            raise SessionError(
                "The session is not open.", hint="Use it inside its with block, or before close()."
            )
        return self._open

    def _plan(
        self, problems: tuple[Problem, ...], options: SolveOptions, in_flight: int | None = None
    ) -> Plan:
        """The plan of a call; raises ConfigError."""
        self._owner.require()
        config = config_of(options, self.source, in_flight)
        strategy = options.get("strategy", config.strategy)
        return Plan(
            config,
            self.deployment,
            problems,
            choose(strategy, self.deployment, config.parameters),
            answer_of=options.get("answer_of"),
            equal=options.get("equal"),
            endpoints={
                role: name_of(endpoint)
                for role, endpoint in zip(ROLES, self._own, strict=True)
                if endpoint is not None
            },
            on_step=options.get("on_step"),
        )

    def _too_long(self, problem: Problem) -> str | None:
        """Why a problem does not fit the engines, if it does not."""
        try:
            Context.of(self.models, problem)
        except DatasetError as error:
            return error.message
        return None

    async def _solve_all(
        self,
        plan: Plan,
        outbox: Outbox,
        source: AsyncIterator[Problem] | None = None,
        skip_overlong: bool = False,
    ) -> None:
        """Solve the problems of a plan, or those of a source as they come."""

        async def fitting(problems: AsyncIterator[Problem]) -> AsyncIterator[Problem]:
            async for problem in problems:
                if skip_overlong and (why := self._too_long(problem)):
                    outbox.put(Result.unasked(problem, plan.strategy.vote, why))
                    await outbox.room()
                else:
                    Context.of(self.models, problem)
                    yield problem

        async with self.work():
            drivers = await self._shared_drivers(plan.policy)
            with Solver(plan, drivers, self._grader) as solver:
                listed = in_turn(solver.in_order(plan.problems))
                problems = fitting(source) if source else listed
                await solver.solve_all(outbox.paced(problems), outbox.put)

    async def _fitting(
        self, plan: Plan, solve: Callable[[Plan], AsyncGenerator[Result, None]]
    ) -> AsyncGenerator[Result, None]:
        """The results of the problems that fit the engines, after those of the others."""
        overlong = {each.id: why for each in plan.problems if (why := self._too_long(each))}
        fitting = tuple(each for each in plan.problems if each.id not in overlong)
        for problem in plan.problems:
            if problem.id in overlong:
                yield Result.unasked(problem, plan.strategy.vote, overlong[problem.id])
        if fitting:
            async with aclosing(solve(replace(plan, problems=fitting))) as running:
                async for result in running:
                    yield result

    async def _shared_drivers(self, policy: Policy) -> Drivers:
        """The drivers of all searches without a folder that are scheduled in this way."""
        if policy not in self._shared:
            drivers = Drivers(self.models, self.replicas, policy)
            self._shared[policy] = await self._resources.enter_async_context(drivers)
            self._drivers.add(drivers)
        return self._shared[policy]
