"""What the log of an interrupted run holds, so that none of it is asked for again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tts.build.errors import RunError
from tts.compat import Self
from tts.search import NodePath, Thought

from .events import thoughts_of
from .folder import EVENTS
from .log import read_events
from .state import ProblemState, RunState, solved_problems


@dataclass
class ResumedWork:
    """What earlier sessions computed for one problem, by node."""

    thoughts: dict[NodePath, tuple[Thought, ...]] = field(default_factory=dict)
    """The node is the first thought's; each further one is child 0 of the one before."""
    scores: dict[NodePath, float] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: ProblemState) -> Self:
        """What has been computed for a problem so far."""
        return cls(
            {event.node: thoughts_of(event) for _, event in problem.generated},
            {event.node: event.score for _, event in problem.scored},
        )

    @property
    def size(self) -> int:
        """How many requests it saves."""
        return len(self.thoughts) + len(self.scores)


@dataclass
class ResumePoint:
    """Where an interrupted run goes on."""

    solved: dict[str, bool | None] = field(default_factory=dict)
    """Of each solved problem, whether its answer is right; None without a reference."""
    unfinished: dict[str, ProblemState] = field(default_factory=dict)
    """The problems that are not solved and for which something was generated or scored."""


def read_resume_point(folder: Path, vote: str) -> ResumePoint:
    """Read what a run's earlier sessions did; `vote` is the rule that its answers are chosen by.

    Raises RunError for a log that is damaged, or in which a problem was solved twice.
    """
    run = RunState()
    solved: dict[str, bool | None] = {}
    for problem in solved_problems(read_events(folder), run):
        if problem.repeated:
            raise RunError(
                f"{folder / EVENTS}: problem {problem.id!r} was solved twice, as when "
                "two processes wrote this log.",
                hint="Keep the first solution of each problem, and a copy of the log: "
                f"tts bench --resume {folder} --repair",
            )
        solved[problem.id] = problem.correct(vote)
    worked_on = {name: each for name, each in run.open.items() if each.generated or each.scored}
    return ResumePoint(solved, worked_on)
