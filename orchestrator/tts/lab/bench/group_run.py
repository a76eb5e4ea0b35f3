"""`tts bench --strategy all`: one run after the other, in a group that can be continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from tts.build.errors import EndpointError, ServerError, TtsError
from tts.runs.compare import read_rows
from tts.runs.config import read_whole_group
from tts.runs.folder import has_begun
from tts.runs.groups import Member, create_group, group_config, write_comparison
from tts.runs.lock import locked
from tts.session import AsyncSession, RunProgress
from tts.session.interrupts import interruptible
from tts.session.plan import Plan, check_same, load_checked
from tts.session.run import OpenRun, open_run
from tts.session.strategy import ChosenStrategy, choose
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import configure_all

from .members import members_of
from .observer import Observer
from .request import Wanted, as_wanted, new_folder, new_session, plan_with, problems_of
from .run import complete_if_solved, run_in, with_way_on


def run_all(wanted: Wanted, out: Path | None, observer: Observer) -> Path:
    """Run every strategy on the same problems, after checking all of them; the group's folder."""
    problems = problems_of(wanted, observer.say)
    spec = load_checked(wanted.deployment)
    configs = configure_all(spec, wanted.parameters)
    members = members_of(configs)
    chosen = {
        name: ChosenStrategy(name, find_strategy(name).vote, config)
        for name, config in configs.items()
    }
    plan = plan_with(wanted, problems, spec, chosen[members[0].strategy])
    folder = (out or new_folder(plan, wanted.strategy)).resolve()
    with locked(folder):
        create_group(folder, group_config(plan.to_config(), members))
        _carry_out(folder, plan, members, chosen, observer, endpoints=wanted.endpoints)
    return folder


def resume_group(
    folder: Path,
    deployment: str | None,
    observer: Observer,
    *,
    repair: bool = False,
    endpoints: tuple[str, ...] = (),
) -> Path:
    """Continue a group: finished runs are kept, a begun one goes on, the others follow.

    With `repair` what is damaged of their logs is dropped first.
    """
    folder = folder.resolve()
    before, members = read_whole_group(folder)
    first = members[0]
    wanted = as_wanted(before, deployment, first.strategy, first.parameters)
    wanted = replace(wanted, endpoints=endpoints)
    problems = problems_of(wanted, observer.say)
    spec = load_checked(wanted.deployment)
    chosen = {each.strategy: choose(each.strategy, spec, each.parameters) for each in members}
    plan = plan_with(wanted, problems, spec, chosen[first.strategy])
    now = [replace(each, parameters=chosen[each.strategy].parameters) for each in members]
    check_same(group_config(plan.to_config(), now), before, folder)
    with locked(folder):
        _carry_out(folder, plan, members, chosen, observer, repair=repair, endpoints=endpoints)
    return folder


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

    All runs are opened first: a damaged log is said before anything is started.
    """
    progress = _GroupProgress(len(members))
    with ExitStack() as opened:
        runs = []
        for member in members:
            where = folder / member.folder
            opening = open_run(
                replace(plan, strategy=chosen[member.strategy]),
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
            raise with_way_on(error, str(progress), folder) from error
    rows, _ = read_rows(folder)
    write_comparison(folder, {"rows": [row.to_json() for row in rows]})


async def _run_members(
    runs: Sequence[tuple[Member, OpenRun]],
    endpoints: tuple[str, ...],
    observer: Observer,
    progress: _GroupProgress,
) -> None:
    """One run after the other on one server, whose caches none has warmed for the next."""
    session: AsyncSession | None = None
    async with AsyncExitStack() as opened:
        for place, (member, run) in enumerate(runs, start=1):
            title = f"{place}/{len(runs)} {' and '.join(member.votes)}"
            progress.current = RunProgress(len(run.plan.problems))
            if not complete_if_solved(run, observer, title):
                observer.say(title)
                if session is None or not await _cold(session):
                    await opened.aclose()
                    session = new_session(run.plan, endpoints, observer)
                    await opened.enter_async_context(session)
                    if not (session.started_server or await _cold(session)):
                        observer.say("Its caches hold what was computed before.")
                await run_in(session, run, observer, progress.current, title=title)
            progress.finished = place


async def _cold(session: AsyncSession) -> bool:
    """Whether the caches of a session's engines could be emptied; no if its server is gone."""
    try:
        return await session.reset_prefix_caches()
    except (EndpointError, ServerError):
        return False
