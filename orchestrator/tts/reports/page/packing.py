"""Trees as text of a page: each problem by itself as gzip in base64, unpacked when it is opened."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tts.runs.state import ProblemState
from tts.search import NodePath

from ..decisions import reason
from .trees import ThoughtRecord, tree_thoughts

_LEVEL = 4  # of gzip: half the time of the usual 6


@dataclass(frozen=True, slots=True)
class PackedTree:
    """A tree as the page holds it: what the list of problems shows, and the rest, packed."""

    entry: dict[str, Any]
    packed: str
    teaches: int = 0
    """How much there is to see: see `_teaches`."""
    tex: bool = False
    """Whether there may be TeX in its texts."""


def pack(problem: ProblemState, vote: str) -> PackedTree:
    """A problem and its tree as a page holds them; `vote` is the rule that chooses answers."""
    solved, thoughts, began = problem.solution, tree_thoughts(problem), problem.first_started or 0.0
    seconds = None if problem.solved_at is None else round(problem.solved_at - began, 3)
    unused = sum(len(record.thought.ids) for record in thoughts if record.used is None)
    entry = {
        "id": problem.id,
        "level": solved and solved.level,
        "correct": problem.correct(vote),
        "solved": solved is not None,
        "answer": problem.answer(vote),
        "reference": solved and solved.reference,
        "question": problem.question,
        "seconds": seconds,
        "tokens": problem.work.generated_tokens + problem.work.critique_tokens - unused,
        "thoughts": len(thoughts),
    }
    data: dict[str, Any] = {
        "seconds": seconds,
        "limit": solved and solved.limit,
        "groups": [
            {"answer": group.answer, "correct": group.correct}
            for group in (solved.groups if solved else ())
        ],
        "completions": [
            {"path": _name(completion.node), "score": completion.score, "group": completion.group}
            for completion in (solved.completions if solved else ())
        ],
        "thoughts": [_thought(record, began) for record in thoughts],
        "cancelled": [
            {
                "path": _name(event.node),
                "work": event.work,
                "why": event.why,
                "sent": _ms(session + event.sent, began),
                "done": _ms(session + event.done, began),
            }
            for session, event in problem.cancelled
        ],
    }
    if solved and solved.decision:
        data["why"] = reason(solved.decision)
    text = json.dumps(data, separators=(",", ":"))
    packed = gzip.compress(text.encode(), compresslevel=_LEVEL, mtime=0)
    texts = [problem.question, *(record.thought.text for record in thoughts)]
    texts += [group.answer for group in (solved.groups if solved else ())]
    tex = any("$" in each or "\\" in each for each in texts if each)
    return PackedTree(entry, base64.b64encode(packed).decode(), _teaches(problem, vote), tex)


def first_shown(runs: Sequence[Sequence[PackedTree]]) -> dict[str, Any] | None:
    """The run and the problem that a page opens with, and the run beside it or None.

    A problem that is right there and wrong in another run comes first, then the one that teaches
    most, of the highest level and with the largest tree. The earlier of two runs is shown
    first. None without problems.
    """
    graded = [{tree.entry["id"]: tree.entry["correct"] for tree in run} for run in runs]
    candidates = range(len(runs)) if len(runs) > 2 else range(min(len(runs), 1))

    def other_outcome(run: int, tree: PackedTree) -> int | None:
        mine = tree.entry["correct"]
        if mine is None or (len(runs) > 2 and not mine):
            return None
        others = (place for place in range(len(runs)) if place != run)
        return next((o for o in others if graded[o].get(tree.entry["id"]) is (not mine)), None)

    def rank(at: tuple[int, PackedTree]) -> tuple[bool, int, int, int]:
        run, tree = at
        level = str(tree.entry["level"])
        return (
            other_outcome(run, tree) is not None,
            tree.teaches,
            int(level) if level.isascii() and level.isdecimal() else 0,
            tree.entry["thoughts"] if len(runs) > 2 else 0,
        )

    places = [(run, tree) for run in candidates for tree in runs[run]]
    if not places:
        return None
    run, best = max(places, key=rank)  # the first one of equals
    beside = other_outcome(run, best)
    if beside is None and len(runs) == 2:
        beside = 1
    return {"run": run, "id": best.entry["id"], "beside": beside}


def _teaches(problem: ProblemState, vote: str) -> int:
    """3: right, though most completions agree on something wrong; 2: right, with wrong ones.

    1: wrong, with a right completion; 0: nothing of this.
    """
    solved, right = problem.solution, problem.correct(vote)
    if solved is None or right is None:
        return 0
    if {group.correct for group in solved.groups} != {True, False}:
        return 0
    if not right:
        return 1
    sizes = Counter(each.group for each in solved.completions if each.group >= 0)
    most = max(range(len(solved.groups)), key=lambda group: sizes[group])
    return 2 if solved.groups[most].correct else 3


def _thought(record: ThoughtRecord, began: float) -> dict[str, Any]:
    thought = record.thought
    data: dict[str, Any] = {
        "path": _name(record.path),
        "text": thought.text,
        "stop": thought.stop,
        "thinking": thought.thinking,
        "tokens": len(thought.ids),
        "sent": _ms(record.sent, began),
        "done": _ms(record.done, began),
        "score": None if record.score is None else round(record.score, 4),
        "scored": _ms(record.scored, began),
        "fate": record.fate or "unused",
        "decided": _ms(record.decided, began),
        "speculative": record.speculative,
        "used": _ms(record.used, began) if record.speculative else None,
        "reused": record.reused,
        "critique": record.critique or None,
    }
    return {name: value for name, value in data.items() if value is not None and value is not False}


def _name(path: NodePath) -> str:
    return ".".join(map(str, path))


def _ms(seconds: float | None, began: float) -> int | None:
    """Milliseconds since the problem began."""
    return None if seconds is None else round(1000 * (seconds - began))
