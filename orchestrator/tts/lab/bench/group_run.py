"""`tts bench --strategy all`: one run after the other, in a group that can be continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from tts.build.errors import TtsError
from tts.build.spec import ServerKind
from tts.runs.compare import read_rows
from tts.runs.config import RunConfig, check_same
from tts.runs.folder import has_begun
from tts.runs.groups import GroupConfig, Member, create_group, read_whole_group, write_comparison
from tts.runs.lock import locked
from tts.search import SearchConfig
from tts.session import RunProgress
from tts.session.interrupts import interruptible
from tts.session.plan import Plan, deployment_of
from tts.session.run import OpenRun, open_run
from tts.session.strategy import ChosenStrategy, choose
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import configure_all

from ..observer import Observer
from .cold import ColdSessions
from .single_run import (
    complete_if_solved,
    new_folder,
    on_deployment,
    plan_with,
    problems_of,
    run_in,
    with_way_on,
)


def run_all(
    config: RunConfig, out: Path | None, observer: Observer, *, endpoints: tuple[str, ...] = ()
) -> Path:
    """Run every strategy on the same problems, after checking all of them; the group's folder."""
    problems = problems_of(config, observer.say)
    spec = deployment_of(config)
    configs = configure_all(spec, config.parameters)
    members = members_of(configs)
    chosen = {
        name: ChosenStrategy(name, find_strategy(name).vote, each) for name, each in configs.items()
    }
    plan = plan_with(config, problems, spec, chosen[members[0].strategy], endpoints)
    folder = (out or new_folder(plan, config.strategy)).resolve()
    with locked(folder):
        create_group(folder, GroupConfig(plan.config, members).to_json())
        _carry_out(folder, plan, members, chosen, observer, endpoints=endpoints)
    return folder


def resume_group(
    folder: Path,
    deployment: str | None,
    observer: Observer,
    *,
    repair: bool = False,
    endpoints: tuple[str, ...] = (),
    server: ServerKind | None = None,
) -> Path:
    """Continue a group: finished runs are kept, a begun one goes on, the others follow.

    With `repair` what is damaged of their logs is dropped first.
    """
    folder = folder.resolve()
    before = read_whole_group(folder)
    config = on_deployment(before.shared, deployment, server)
    problems = problems_of(config, observer.say)
    spec = deployment_of(config)
    members = before.members
    chosen = {each.strategy: choose(each.strategy, spec, each.parameters) for each in members}
    plan = plan_with(config, problems, spec, chosen[members[0].strategy], endpoints)
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
    async with ColdSessions(observer, endpoints) as sessions:
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
