"""The tree of a problem from its log, and as text of a page.

Every thought has its fate, and the time at which the log first shows it. On a page each problem is
gzip in base64 by itself, unpacked when it is opened.
"""

from __future__ import annotations

import base64
import gzip
import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tts.runs.events import LoggedThought
from tts.runs.state import ProblemState
from tts.search import Decision, Fate, NodePath

_METHODS = {
    "mcts": "MCTS, which follows the scores",
    "rebase": "rounds of REBASE, which share out chains by the scores",
    "vote": "independent chains, which vote",
}
_ENDS = {
    "vote": "the vote was decided",
    "allowance": "the tokens that it was allowed were spent",
    "no votes": "no completion had a vote",
    "n": "n had room for no more completions",
    "limit": "a limit was reached",
}


def reason(decision: Decision) -> str:
    """Sentences on what a problem's search was advised, and what came of it."""
    advice = decision.advice
    measured = "the verifier was not measured"
    if advice.auroc is not None:
        measured = (
            f"the verifier's scores of steps have an area under the ROC curve of {advice.auroc:.2f}"
        )
    sentences = [f"The method was {_METHODS[advice.method]} ({measured})."]
    if advice.allowance is not None:
        allowed, most = "It was to end with its first completions", " or at {:,} tokens"
        if advice.allowance:
            allowed = f"It was allowed {advice.allowance:,} tokens if it had a completion by then"
            most = ", and {:,} at most"
        sentences.append(allowed + (most.format(advice.cap) if advice.cap else "") + ".")
    first = ""
    if decision.first_tokens is not None:
        first = f" (it could have ended after {decision.first_tokens:,})"
    elif decision.chain_tokens is None:
        first = " (no completion came before the end)"
    sentences.append(
        f"It took {decision.tokens:,} tokens{first} and ended because {_ENDS[decision.ended_by]}."
    )
    return " ".join(sentences)


@dataclass(slots=True, eq=False)
class ThoughtRecord:
    """A thought and its fate. Times are seconds since the run's first session began."""

    path: NodePath
    thought: LoggedThought
    sent: float
    done: float
    speculative: bool
    """Sent before its search asked for it."""
    used: float | None
    """When its search asked for it; None if it never did, as of speculative work in vain."""
    score: float | None = None
    scored: float | None = None
    reused: bool = False
    """Its score is that of an equal step, without a call of its own."""
    critique: str = ""
    """The verifier's text about it."""
    fate: Fate | None = None
    """None if it never entered the tree: it was not used, or its budget had no room for it."""
    decided: float | None = None
    """When the log first shows its fate; None while it is open."""


def tree_thoughts(problem: ProblemState) -> list[ThoughtRecord]:
    """The thoughts of a problem's tree, in the order in which they were written."""
    records = _thoughts(problem)
    _settle(problem, records)
    _date(problem, records.values())
    return sorted(records.values(), key=lambda record: (record.done, record.path))


def _thoughts(problem: ProblemState) -> dict[NodePath, ThoughtRecord]:
    """Every thought with its times and its score."""
    uses = {event.node: began + event.t for began, event in problem.uses}
    records = {}
    for node, thought, began, event in problem.thoughts():
        at, speculative = began + event.sent, event.kind == "speculative"
        records[node] = ThoughtRecord(
            node,
            thought,
            at,
            began + event.done,
            speculative,
            uses.get(event.node) if speculative else at,
        )
    for session, scored in reversed(problem.scored):  # a node's first score is the one that holds
        if record := records.get(scored.node):
            record.score, record.reused = scored.score, scored.cached
            record.critique = scored.critique
            record.scored = session + (scored.t if scored.cached else scored.done)
    return records


def _settle(problem: ProblemState, records: dict[NodePath, ThoughtRecord]) -> None:
    """Give every thought its fate, children first: whoever has one in the tree was expanded."""
    solution = problem.solution
    fates: dict[NodePath, Fate] = {}
    if solution:
        fates |= {end.node: Fate.COMPLETED for end in solution.completions}
        fates |= {node: fate for fate, nodes in solution.fates.items() for node in nodes}
    parents: set[NodePath] = set()
    for path in sorted(records, key=len, reverse=True):
        is_open = solution is None and records[path].used is not None
        plain = Fate.EXPANDED if path in parents else Fate.OPEN if is_open else None
        records[path].fate = fate = fates.get(path, plain)
        if fate:
            parents.add(path[:-1])


def _date(problem: ProblemState, records: Iterable[ThoughtRecord]) -> None:
    """Date each fate by what shows it first.

    A thought is kept when a child of it is asked for. It is pruned when, after its score, another
    of its depth is expanded; the rest is known at the end.
    """
    expanded: dict[NodePath, float] = {}
    """When the first child of a node was asked for."""
    for record in records:
        if record.used is not None:
            above = record.path[:-1]
            expanded[above] = min(record.used, expanded.get(above, record.used))
    by_depth: dict[int, list[float]] = defaultdict(list)
    for path, asked_at in sorted(expanded.items(), key=lambda item: item[1]):
        by_depth[len(path)].append(asked_at)
    for record in records:
        if record.fate is Fate.PRUNED:
            times = by_depth[len(record.path)]
            place = bisect_left(times, record.scored or record.done)
            record.decided = times[place] if place < len(times) else problem.solved_at
        elif record.fate:
            record.decided = expanded.get(record.path, problem.solved_at)


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
