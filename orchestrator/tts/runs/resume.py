"""Going on with a run: what the log of an interrupted one holds, and the repair of a damaged one.

A damaged line may have belonged to any problem. So each problem that was being solved there counts
as unsolved again: the log supplies what is left of it, and only the rest is requested.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tts.build.errors import RunError
from tts.search import Decision, ResumedWork

from .checksums import Chain
from .durable import replacing, write_copy
from .events import (
    VERSION,
    AnyEvent,
    Finished,
    ProblemSolved,
    ProblemStarted,
    Session,
    encode,
    thoughts_of,
)
from .files import open_file
from .folder import EVENTS, SUMMARY, cannot_write
from .log import Damage, read_events, read_lines
from .state import ProblemState, RunState, solved_problems


@dataclass
class ResumePoint:
    """Where an interrupted run goes on."""

    solved: dict[str, bool | None] = field(default_factory=dict)
    """Whether the answer of each solved problem is right; None without a reference."""
    unfinished: dict[str, ProblemState] = field(default_factory=dict)
    """The problems that are not solved and for which something was generated or scored."""
    decisions: dict[str, Decision] = field(default_factory=dict)
    """The decisions of `auto` on the solved problems."""


def resumed_work(problem: ProblemState) -> ResumedWork:
    """The results computed for a problem so far."""
    return ResumedWork(
        {event.node: thoughts_of(event) for _, event in problem.generated},
        {event.node: event.score for _, event in problem.scored},
    )


def read_resume_point(folder: Path, vote: str) -> ResumePoint:
    """Read what a run's earlier sessions did; `vote` is the rule that its answers are chosen by.

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
                hint="Keep the first solution of each problem, and a copy of the log: "
                f"tts bench --resume {folder} --repair",
            )
        solved[problem.id] = problem.correct(vote)
        if problem.solution and problem.solution.decision:
            decisions[problem.id] = problem.solution.decision
    worked_on = {name: each for name, each in run.open.items() if each.generated or each.scored}
    return ResumePoint(solved, worked_on, decisions)


@dataclass(frozen=True)
class Repair:
    """The parts dropped from a log."""

    lines: int
    """Lines that were dropped: damaged ones, and solutions that are not to be believed."""
    unsolved: tuple[str, ...]
    """Problems whose solution was dropped, and that have no other."""
    copy: Path
    """The log as it was."""

    def __str__(self) -> str:
        again = f", to be solved again: {', '.join(self.unsolved)}" if self.unsolved else ""
        return f"Repaired: lines dropped: {self.lines}{again}; the log as it was: {self.copy}"


def repair_log(folder: Path, problems: Collection[str]) -> Repair | None:
    """Drop damaged parts of a run's log, which is copied first; None if there are none.

    If a problem is solved twice, the first solution stays; solutions of problems outside the run's
    `problems` are dropped. Raises RunError.
    """
    found = _survey(folder, problems)
    if not found.damaged and not found.doubtful:
        return None
    log = folder / EVENTS
    copy = _unused(log)
    try:
        with open_file(log) as content:
            write_copy(content.fileno(), copy)
        chain = Chain()
        with replacing(log) as content:
            for event in _kept(folder, found.doubtful.keys()):
                content.write(chain.seal(encode(event)))
            (folder / SUMMARY).unlink(missing_ok=True)  # it may have counted what is dropped
    except OSError as error:
        raise cannot_write(folder, error) from error
    unsolved = dict.fromkeys(name for name in found.doubtful.values() if name not in found.solved)
    return Repair(found.damaged + len(found.doubtful), tuple(unsolved), copy)


@dataclass
class _Survey:
    damaged: int = 0
    """Damaged lines."""
    solved: set[str] = field(default_factory=set)
    """Problems with a solution that stays."""
    doubtful: dict[int, str] = field(default_factory=dict)
    """Solutions that do not stay: the problem, by the place in the log."""


def _survey(folder: Path, problems: Collection[str]) -> _Survey:
    survey = _Survey()
    began: dict[str, int] = {}  # damaged lines before a problem's first; -1: that one is lost
    for place, found in enumerate(read_lines(folder)):
        if isinstance(found, Damage):
            survey.damaged += 1
            continue
        name = getattr(found, "problem", None)
        if name is None:
            continue
        before = began.setdefault(name, survey.damaged if isinstance(found, ProblemStarted) else -1)
        if isinstance(found, ProblemSolved):
            whole = survey.damaged in (0, before)
            if whole and name in problems and name not in survey.solved:
                survey.solved.add(name)
            else:
                survey.doubtful[place] = name
    return survey


def _kept(folder: Path, dropped: Collection[int]) -> Iterator[AnyEvent]:
    """The events that stay, without those at the places `dropped`.

    A session whose first line was damaged gets one again: its clock began anew there.
    """
    damaged, t = False, 0.0
    session: Session | None = None
    for place, found in enumerate(read_lines(folder)):
        if isinstance(found, Damage):
            damaged = True
            continue
        if isinstance(found, Session):
            session = found
        elif session is None or (damaged and found.t < t):
            session = Session(t=0.0, time=session.time if session else "", version=VERSION)
            yield session
        damaged, t = False, found.t
        if place not in dropped and not isinstance(found, Finished):
            yield found


def _unused(log: Path) -> Path:
    """A name for a copy of the log, beside it."""
    names = (f"{log.name}.damaged{'' if number == 1 else f'-{number}'}" for number in count(1))
    return next(file for name in names if not os.path.lexists(file := log.with_name(name)))
