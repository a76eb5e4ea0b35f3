"""`tts bench --strategy all`: one run after the other, in a group that can be continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tts.analysis.comparison import read_rows
from tts.build.errors import Interrupted, TtsError
from tts.runlog.folder import has_begun, has_finished
from tts.runlog.groups import Member, create_group, group_config, read_group, write_comparison
from tts.session import AsyncSession, RunProgress
from tts.session.plan import Plan, check_same, load_checked
from tts.session.strategy import ChosenStrategy, choose
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import configure_all

from .members import members_of
from .observer import Observer
from .request import Wanted, as_wanted, new_folder, plan_with, problems_of
from .run import run_plan, with_way_on


def run_all(wanted: Wanted, out: Path | None, observer: Observer) -> Path:
    """Run every strategy on the same problems, after checking all of them; the group's folder."""
    problems = problems_of(wanted)
    spec = load_checked(wanted.deployment)
    configs = configure_all(spec, wanted.parameters)
    members = members_of(configs)
    chosen = {
        name: ChosenStrategy(name, find_strategy(name).vote, config)
        for name, config in configs.items()
    }
    plan = plan_with(wanted, problems, spec, chosen[members[0].strategy])
    folder = (out or new_folder(plan, wanted.strategy)).resolve()
    create_group(folder, group_config(plan.to_config(), members))
    _run_members(folder, plan, members, chosen, observer)
    return folder


def resume_group(folder: Path, deployment: str | None, observer: Observer) -> Path:
    """Continue a group: finished runs are kept, a begun one goes on, the others follow."""
    folder = folder.resolve()
    before, members = read_group(folder)
    first = members[0]
    wanted = as_wanted(before, deployment, first.strategy, first.parameters)
    problems = problems_of(wanted)
    spec = load_checked(wanted.deployment)
    chosen = {each.strategy: choose(each.strategy, spec, each.parameters) for each in members}
    plan = plan_with(wanted, problems, spec, chosen[first.strategy])
    now = [replace(each, parameters=chosen[each.strategy].parameters) for each in members]
    check_same(group_config(plan.to_config(), now), before, folder)
    _run_members(folder, plan, members, chosen, observer)
    return folder


def _run_members(
    folder: Path,
    plan: Plan,
    members: list[Member],
    chosen: Mapping[str, ChosenStrategy],
    observer: Observer,
) -> None:
    """Run what has not finished, one after the other, and keep the comparison's numbers."""
    finished = 0
    progress = RunProgress(len(plan.problems))
    try:
        for place, member in enumerate(members, start=1):
            title = f"{place}/{len(members)} {' and '.join(member.votes)}"
            run = folder / member.folder
            if has_finished(run):
                observer.say(f"{title}: finished")
            else:
                observer.say(title)
                progress = RunProgress(len(plan.problems))
                variant = replace(plan, strategy=chosen[member.strategy])
                session = AsyncSession(plan.deployment, say=observer.say)
                resume = has_begun(run)
                run_plan(session, variant, run, observer, progress, resume=resume, title=title)
            finished = place
    except (TtsError, KeyboardInterrupt) as stopped:  # an interrupt while no search is going
        error = stopped if isinstance(stopped, TtsError) else Interrupted("Interrupted.")
        done = f"{finished} of {len(members)} runs are finished"
        if progress.began and progress.done < progress.total:
            done += f", {progress.done} of {progress.total} problems of the next are solved"
        raise with_way_on(error, done, folder) from stopped
    rows, _ = read_rows(folder)
    write_comparison(folder, {"rows": [row.to_json() for row in rows]})
