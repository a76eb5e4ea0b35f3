"""Going on with a run: what the log of an interrupted one holds, and the repair of a damaged one.

Nobody can tell what a damaged line said, and lines behind it were computed knowing it: the log is
cut off there. Seeds give the rest again, as after any interruption.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

from tts.base.errors import RunDamaged, RunError
from tts.search import Decision, ResumedWork, Scored

from .events import ProblemSolved, thoughts_of
from .files import open_file, replacing
from .folder import EVENTS, drop_results, writing
from .log import read_events
from .state import ProblemState, RunState, solved_problems


@dataclass
class ResumePoint:
    """Where an interrupted run goes on."""

    solved: dict[str, bool | None] = field(default_factory=dict)
    """Whether the answer of each solved problem is right; None without a reference."""
    unfinished: dict[str, ProblemState] = field(default_factory=dict)
    """The problems that are not solved and for which something was generated or scored."""
    decisions: dict[str, Decision] = field(default_factory=dict)
    """What came of the advice to the solved problems, which advise those behind them."""
    changed: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of the functions' files that have changed since the last session, by role."""


def resumed_work(problem: ProblemState) -> ResumedWork:
    """The results computed for a problem so far."""
    return ResumedWork(
        {event.node: thoughts_of(event) for _, event in problem.generated},
        {event.node: Scored(event.node, event.score, event.tokens) for _, event in problem.scored},
    )


def read_resume_point(
    folder: Path,
    vote: str,
    now: Mapping[str, str] | None = None,
    first: Mapping[str, str] | None = None,
) -> ResumePoint:
    """Read what a run's earlier sessions did; `vote` is the rule that its answers are chosen by.

    `now` has the SHA-256 of the functions' files by role, `first` those that the run began with.
    Raises RunError for a log that is damaged, or in which a problem was solved twice.
    """
    run = RunState()
    solved: dict[str, bool | None] = {}
    decisions: dict[str, Decision] = {}
    for problem in solved_problems(read_events(folder), run):
        if problem.repeated:
            raise RunError(
                f"{folder / EVENTS}: problem {problem.id!r} was solved twice, as when "
                "two processes wrote this log.",
                hint="Cut the log off before the second solution, keeping a copy of it: "
                f"tts bench --resume {folder} --repair",
            )
        solved[problem.id] = problem.correct(vote)
        if problem.solution and problem.solution.decision:
            decisions[problem.id] = problem.solution.decision
    last = {**(first or {}), **{role: change.sha256 for role, change in run.changed.items()}}
    changed = {
        role: sha256 for role, sha256 in (now or {}).items() if sha256 != last.get(role, sha256)
    }
    run.change(changed)
    worked_on = {name: each for name, each in run.open.items() if each.generated or each.scored}
    return ResumePoint(solved, worked_on, decisions, changed)


@dataclass(frozen=True)
class Repair:
    """The end that was cut off a log."""

    lines: int
    """The lines that stay."""
    copy: Path
    """The log as it was."""

    def __str__(self) -> str:
        return f"Repaired: {self.lines} lines of the log stay; the log as it was: {self.copy}"


def repair_log(folder: Path, problems: Collection[str]) -> Repair | None:
    """Cut a run's log off, copied first, where damage begins; None if there is none.

    Damage is also a second solution of a problem, or one of a problem outside the run's `problems`.
    Raises RunError.
    """
    log = folder / EVENTS
    lines = _whole_lines(folder, problems)
    if lines is None:
        return None
    copy = _unused(log)
    with writing(folder), open_file(log) as content:
        with replacing(copy) as damaged:
            shutil.copyfileobj(content, damaged)
        drop_results(folder)  # they count what is cut off
        content.seek(0)
        with replacing(log) as sound:
            sound.writelines(islice(content, lines))
    return Repair(lines, copy)


def _whole_lines(folder: Path, problems: Collection[str]) -> int | None:
    """How many lines of a log stand before the first damage; None if there is none."""
    lines, open_ids = 0, set(problems)
    try:
        for event in read_events(folder):
            if isinstance(event, ProblemSolved):
                if event.problem not in open_ids:
                    return lines
                open_ids.remove(event.problem)
            lines += 1
    except RunDamaged:
        return lines
    return None


def _unused(log: Path) -> Path:
    """A name for a copy of the log, beside it."""
    names = (f"{log.name}.damaged{'' if number == 1 else f'-{number}'}" for number in count(1))
    return next(file for name in names if not os.path.lexists(file := log.with_name(name)))
