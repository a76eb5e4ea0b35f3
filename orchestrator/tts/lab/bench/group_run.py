"""`tts bench` with several strategies: one run after the other, in a group that can be continued.

Each run finds cold engines, as `ColdSessions` opens them; so do those of a study.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from tts.build.errors import EndpointError, ServerError, TtsError
from tts.build.server_kinds import ServerKind
from tts.build.spec import Deployment
from tts.runs.compare import read_rows
from tts.runs.config import FunctionSource, Limits, RunConfig, check_same
from tts.runs.folder import has_begun, refuse_begun
from tts.runs.groups import GroupConfig, Member, create_group, read_whole_group, write_comparison
from tts.runs.lock import locked
from tts.search import SearchConfig
from tts.session import AsyncSession, RunProgress
from tts.session.interrupts import interruptible
from tts.session.plan import Plan, deployment_of
from tts.session.run import OpenRun, open_run
from tts.session.strategy import ChosenStrategy, choose
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import configure_all, settable_of

from ..observer import Observer
from .equal_cost import Share, fit
from .single_run import (
    complete_if_solved,
    folder_of,
    new_session,
    on_deployment,
    plan_with,
    problems_of,
    repeated,
    run_in,
    with_way_on,
)


class ColdSessions(AsyncExitStack):
    """Opens and closes sessions so that each run finds its deployment's engines, caches empty."""

    def __init__(
        self,
        observer: Observer,
        endpoints: tuple[str, ...] = (),
        verifier: Any | None = None,
    ) -> None:
        """`endpoints` are the servers to use; none: those of the deployment, or of this machine.

        `verifier` scores instead of the deployment's.
        """
        super().__init__()
        self.start_s: float | None = None
        """The time of the last start of a server; None before the first."""
        self.warm = False
        """Whether the session that was opened last found caches that could not be emptied."""
        self._observer = observer
        self._endpoints = endpoints
        self._verifier = verifier
        self._session: AsyncSession | None = None

    async def cold(self, deployment: Deployment) -> AsyncSession:
        """A session with this deployment whose caches are empty, if they can be emptied."""
        session = self._session
        if session and session.deployment == deployment and await _emptied(session):
            self.warm = False
            return session
        await self.aclose()
        began = time.monotonic()
        session = new_session(deployment, self._endpoints, self._observer, self._verifier)
        self._session = await self.enter_async_context(session)
        if session.started_server:
            self.start_s = time.monotonic() - began
        self.warm = not (session.started_server or await _emptied(session))
        return session


async def _emptied(session: AsyncSession) -> bool:
    """Whether the caches of a session's engines could be emptied; no if its server is gone."""
    try:
        return await session.reset_prefix_caches()
    except (EndpointError, ServerError):
        return False


def run_all(
    config: RunConfig,
    out: Path | None,
    observer: Observer,
    *,
    names: Sequence[str] = (),
    endpoints: tuple[str, ...] = (),
) -> Path:
    """Run strategies on the same problems, after checking all of them; the group's folder.

    `names` are the strategies; none: every one there is.

    Limits without an n are the mean cost of a problem to which the n of each strategy is fitted.
    """
    if config.limits and "n" not in config.parameters:
        config = msgspec.structs.replace(config, limits=Limits(), fitted_to=config.limits)
    config, problems = problems_of(config, observer.say)
    spec = deployment_of(config)
    configs = configure_all(spec, config.parameters, names)
    members, chosen = members_of(configs), _chosen(configs)
    first = chosen[members[0].strategy]
    plan = plan_with(config, problems, spec, first, endpoints, say=observer.say)
    folder = folder_of(plan, "comparison" if names else config.strategy, out)
    with locked(folder):
        if config.fitted_to:
            refuse_begun(folder)
            searches = [tuple(member.votes) for member in members]
            fitting = _fitted(plan, searches, endpoints, observer)
            shares = interruptible(fitting, observer.say)
            configs = {name: each.config for name, each in shares.items()}
            members, chosen = members_of(configs), _chosen(configs)
            members = [
                replace(each, budget_tokens=shares[each.strategy].budget_tokens) for each in members
            ]
            plan = replace(plan, strategy=chosen[members[0].strategy])
        create_group(folder, GroupConfig(plan.config, members).to_json())
        _carry_out(folder, plan, members, chosen, observer, endpoints=endpoints)
    return folder


def _chosen(configs: Mapping[str, SearchConfig]) -> dict[str, ChosenStrategy]:
    return {
        name: ChosenStrategy(name, find_strategy(name).vote, each) for name, each in configs.items()
    }


async def _fitted(
    plan: Plan, names: Sequence[Sequence[str]], endpoints: tuple[str, ...], observer: Observer
) -> dict[str, Share]:
    """What a few problems show to be within the budget: the n of every strategy, or its tokens.

    `names` are the strategies, those that are one search together.
    """
    observer.say("Fitting n of each strategy to the budget on a few problems")
    asked, spec = plan.asked, plan.deployment
    shares: dict[str, Share] = {}
    async with ColdSessions(observer, endpoints, plan.verifier) as sessions:
        for together in names:
            given = settable_of(find_strategy(together[0]), asked.parameters)
            found = await fit(
                asked, spec, together[0], given, plan.problems, sessions.cold, observer.say
            )
            shares |= dict.fromkeys(together, found)
    return shares


def resume_group(
    folder: Path,
    deployment: str | None,
    observer: Observer,
    *,
    repair: bool = False,
    endpoints: tuple[str, ...] = (),
    server: ServerKind | None = None,
    sources: Mapping[str, FunctionSource] | None = None,
) -> Path:
    """Continue a group: finished runs are kept, a begun one goes on, the others follow.

    With `repair`, damaged logs are cut off first. `sources`: as `on_deployment`.
    """
    before = read_whole_group(folder)
    config = on_deployment(before.shared, folder, deployment, server, sources or {})
    folder = folder.resolve()
    config, problems = problems_of(config, observer.say)
    spec = deployment_of(config)
    members = before.members
    chosen = {each.strategy: choose(each.strategy, spec, each.parameters) for each in members}
    first = chosen[members[0].strategy]
    plan = plan_with(config, problems, spec, first, endpoints, say=observer.say)
    members = [replace(each, parameters=chosen[each.strategy].parameters) for each in members]
    check_same(GroupConfig(plan.config, members).to_json(), before.to_json(), folder)
    with locked(folder):
        _carry_out(folder, plan, members, chosen, observer, repair=repair, endpoints=endpoints)
    return folder


def members_of(configs: Mapping[str, SearchConfig]) -> list[Member]:
    """The runs that strategies with these parameters need: one for all that search the same."""
    shared: dict[tuple[type[SearchConfig], SearchConfig], list[str]] = {}
    for name, config in configs.items():
        shared.setdefault((type(config), config), []).append(name)
    return [
        Member(
            names[0],
            {name: find_strategy(name).vote for name in names},
            config.to_json(),
        )
        for (_, config), names in shared.items()
    ]


def _plan_with(plan: Plan, strategy: ChosenStrategy, budget_tokens: int | None) -> Plan:
    """The plan of one member: fitted to the budget, or with a budget as its limit."""
    asked = plan.asked
    if budget_tokens is not None:
        asked = msgspec.structs.replace(asked, limits=Limits(budget_tokens=budget_tokens))
    elif strategy.config and strategy.config.TAKES_BUDGET and asked.fitted_to:
        asked = msgspec.structs.replace(asked, limits=asked.fitted_to)
    return replace(plan, strategy=strategy, asked=asked)


@dataclass
class _GroupProgress:
    """How far a group is."""

    runs: int
    finished: int = 0
    current: RunProgress = field(default_factory=lambda: RunProgress(0))

    def __str__(self) -> str:
        done = f"{self.finished} of {self.runs} runs are finished"
        if self.current.began and self.current.done < self.current.total:
            done += f", {self.current.done} of {self.current.total} problems of the next are solved"
        return done


def _carry_out(
    folder: Path,
    plan: Plan,
    members: list[Member],
    chosen: Mapping[str, ChosenStrategy],
    observer: Observer,
    *,
    repair: bool = False,
    endpoints: tuple[str, ...] = (),
) -> None:
    """Run what has not finished and keep the comparison's numbers.

    All runs are opened first, so a damaged log is reported before anything is started.
    """
    progress = _GroupProgress(len(members))
    with ExitStack() as opened:
        runs = []
        for member in members:
            where = folder / member.folder
            opening = open_run(
                _plan_with(plan, chosen[member.strategy], member.budget_tokens),
                where,
                resume=has_begun(where),
                repair=repair,
                say=observer.say,
            )
            runs.append((member, opened.enter_context(opening)))
        try:
            running = _run_members(runs, endpoints, observer, progress)
            interruptible(running, observer.say)
        except TtsError as error:
            command = f"tts bench --resume {folder}{repeated(plan.asked.sources)}"
            raise with_way_on(error, str(progress), folder, command) from error
    rows, _ = read_rows(folder)
    write_comparison(folder, {"rows": [row.to_json() for row in rows]})


async def _run_members(
    runs: Sequence[tuple[Member, OpenRun]],
    endpoints: tuple[str, ...],
    observer: Observer,
    progress: _GroupProgress,
) -> None:
    """One run after the other on one server, whose caches none has warmed for the next."""
    async with ColdSessions(observer, endpoints, runs[0][1].plan.verifier) as sessions:
        for place, (member, run) in enumerate(runs, start=1):
            title = f"{place}/{len(runs)} {' and '.join(member.votes)}"
            progress.current = RunProgress(len(run.plan.problems))
            if not complete_if_solved(run, observer, title):
                observer.say(title)
                session = await sessions.cold(run.plan.deployment)
                if sessions.warm:
                    observer.say("Its caches hold what was computed before.")
                await run_in(session, run, observer, progress.current, title=title)
            progress.finished = place
