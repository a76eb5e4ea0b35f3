"""What an interrupted run's log already holds: solved problems, and pieces of the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tts.search import NodePath, Stop, Thought

from .log import Event, read_events


@dataclass
class ResumedWork:
    """What an interrupted run has left of one problem: thoughts and scores by node."""

    thoughts: dict[NodePath, tuple[Thought, ...]] = field(default_factory=dict)
    scores: dict[NodePath, float] = field(default_factory=dict)


@dataclass
class Saved:
    """What the log of an interrupted run holds: solved problems, and pieces of the others."""

    solved: dict[str, bool | None] = field(default_factory=dict)
    replayed: dict[str, ResumedWork] = field(default_factory=dict)


def load_saved(folder: Path, vote: str) -> Saved:
    """Read back what a run's earlier sessions did."""
    saved = Saved()
    for event in read_events(folder):
        if "problem" not in event:
            continue
        problem: str = event["problem"]
        if event["event"] == "problem_solved":
            saved.solved[problem] = event["correct"] and event["correct"].get(vote)
            saved.replayed.pop(problem, None)
        elif event["event"] in ("generated", "scored"):
            pieces = saved.replayed.setdefault(problem, ResumedWork())
            node = tuple(event["node"])
            if event["event"] == "scored":
                pieces.scores[node] = event["score"]
            else:
                pieces.thoughts[node] = thoughts_in(event)
    return saved


def thoughts_in(event: Event) -> tuple[Thought, ...]:
    """The thoughts of a `generated` event."""
    return tuple(Thought(tuple(t["ids"]), t["text"], Stop(t["stop"])) for t in event["thoughts"])
