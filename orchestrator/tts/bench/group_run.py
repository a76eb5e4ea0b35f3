"""`tts bench --strategy all`: one run after the other, in a group that can be continued."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tts.analysis.comparison import read_rows
from tts.build.errors import Interrupted, TtsError
from tts.prompting.context import Context
from tts.reports.console import say
from tts.runlog.folder import has_begun, has_finished
from tts.runlog.groups import Member, create_group, group_config, read_group, write_comparison
from tts.search import SearchConfig
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import configure, configure_all

from .members import members_of
from .request import (
    Wanted,
    as_wanted,
    load_checked,
    new_folder,
    plan_with,
    problems_of,
    with_way_on,
)
from .run import Plan, Progress, check_same
from .serving import run_plan


def run_all(wanted: Wanted, out: Path | None) -> Path:
    """Run every strategy on the same problems, after checking all of them; the group's folder."""
    problems = problems_of(wanted)
    spec = load_checked(wanted.deployment)
    configs = configure_all(spec, wanted.parameters)
    members = members_of(configs)
    first = members[0].strategy
    plan = plan_with(wanted, problems, spec, find_strategy(first), configs[first])
    folder = (out or new_folder(plan, wanted.strategy)).resolve()
    create_group(folder, group_config(plan.to_config(), members))
    _run_members(folder, plan, members, configs)
    return folder


def resume_group(folder: Path, deployment: str | None) -> Path:
    """Continue a group: finished runs are kept, a begun one goes on, the others follow."""
    folder = folder.resolve()
    before, members = read_group(folder)
    first = members[0]
    wanted = as_wanted(before, deployment, first.strategy, first.parameters)
    problems = problems_of(wanted)
    spec = load_checked(wanted.deployment)
    configs = {
        member.strategy: configure(find_strategy(member.strategy), spec, member.parameters)
        for member in members
    }
    plan = plan_with(wanted, problems, spec, find_strategy(first.strategy), configs[first.strategy])
    now = [
        replace(member, parameters=configs[member.strategy].model_dump(mode="json"))
        for member in members
    ]
    check_same(group_config(plan.to_config(), now), before, folder)
    _run_members(folder, plan, members, configs)
    return folder


def _run_members(
    folder: Path, plan: Plan, members: list[Member], configs: dict[str, SearchConfig]
) -> None:
    """Run what has not finished, one after the other, and keep the comparison's numbers."""
    finished = 0
    progress = Progress(len(plan.problems))
    try:
        for place, member in enumerate(members, start=1):
            title = f"{place}/{len(members)} {' and '.join(member.votes)}"
            run = folder / member.folder
            if has_finished(run):
                say(f"{title}: finished")
            else:
                say(title)
                progress = Progress(len(plan.problems))
                variant = _variant(plan, member.strategy, configs[member.strategy])
                run_plan(variant, run, progress, resume=has_begun(run), title=title)
            finished = place
    except (TtsError, KeyboardInterrupt) as stopped:  # an interrupt while no search is going
        error = stopped if isinstance(stopped, TtsError) else Interrupted("Interrupted.")
        done = f"{finished} of {len(members)} runs are finished"
        if progress.began and progress.done < progress.total:
            done += f", {progress.done} of {progress.total} problems of the next are solved"
        raise with_way_on(error, done, folder) from stopped
    rows, _ = read_rows(folder)
    write_comparison(folder, {"rows": [row.to_json() for row in rows]})


def _variant(plan: Plan, strategy: str, parameters: SearchConfig) -> Plan:
    """The same plan under another strategy, with contexts that no run has written into."""
    fresh = tuple(Context.of(plan.models, context.problem) for context in plan.problems)
    return replace(plan, problems=fresh, strategy=find_strategy(strategy), parameters=parameters)
