"""What the log of an interrupted run holds, so that none of it is asked for again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tts.build.errors import RunError
from tts.search import NodePath, Thought

from .events import Generated, ProblemSolved, Scored, thoughts_of
from .folder import EVENTS
from .log import read_events


@dataclass
class ResumedWork:
    """What earlier sessions computed for one problem, by node."""

    thoughts: dict[NodePath, tuple[Thought, ...]] = field(default_factory=dict)
    """The node is the first thought's; each further one is child 0 of the one before."""
    scores: dict[NodePath, float] = field(default_factory=dict)

    def learn(self, event: Generated | Scored) -> None:
        """Take in what a request of this problem has brought."""
        if isinstance(event, Generated):
            self.thoughts[event.node] = thoughts_of(event)
        else:
            self.scores[event.node] = event.score

    @property
    def size(self) -> int:
        """How many requests it saves."""
        return len(self.thoughts) + len(self.scores)


@dataclass
class ResumePoint:
    """Where an interrupted run goes on."""

    solved: dict[str, bool | None] = field(default_factory=dict)
    """Of each solved problem, whether its answer is right; None without a reference."""
    unfinished: dict[str, ResumedWork] = field(default_factory=dict)
    """What there is of begun problems."""


def read_resume_point(folder: Path, vote: str) -> ResumePoint:
    """Read what a run's earlier sessions did; `vote` is the rule that its answers are chosen by.

    Raises RunError for a log that is damaged, or in which a problem was solved twice.
    """
    point = ResumePoint()
    for event in read_events(folder):
        match event:
            case ProblemSolved():
                if event.problem in point.solved:
                    raise RunError(
                        f"{folder / EVENTS}: problem {event.problem!r} was solved twice, as when "
                        "two processes wrote this log.",
                        hint="Keep the first solution of each problem, and a copy of the log: "
                        f"tts bench --resume {folder} --repair",
                    )
                correct = event.correct
                point.solved[event.problem] = None if correct is None else correct.get(vote)
                point.unfinished.pop(event.problem, None)
            case Generated() | Scored():
                point.unfinished.setdefault(event.problem, ResumedWork()).learn(event)
    return point
