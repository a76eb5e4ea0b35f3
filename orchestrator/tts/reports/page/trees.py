"""The tree of each problem as its log tells it: every thought, what became of it, and when."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tts.runs.events import LoggedThought
from tts.runs.state import ProblemState
from tts.search import Fate, NodePath, Stop


@dataclass(slots=True, eq=False)
class ThoughtRecord:
    """A thought and what became of it. Times are seconds since the run's first session began."""

    path: NodePath
    thought: LoggedThought
    sent: float | None
    """None where it is not known."""
    done: float
    speculative: bool
    """Sent before its search asked for it."""
    used: float | None
    """When its search asked for it; None for speculative work that it never asked for."""
    score: float | None = None
    scored: float | None = None
    reused: bool = False
    """Its score is that of an equal step, without a call of its own."""
    critique: str = ""
    """What the verifier wrote about it."""
    fate: Fate | None = None
    """None for speculative work that was not used: it never entered the tree."""
    decided: float | None = None
    """When the log first shows its fate; None while it is open."""


def tree_thoughts(problem: ProblemState) -> list[ThoughtRecord]:
    """The thoughts of a problem's tree, in the order in which they were written."""
    nodes = _thoughts(problem)
    _settle(problem, nodes)
    return sorted(nodes.values(), key=lambda record: (record.done, record.path))


def tree_digest(thoughts: Iterable[ThoughtRecord]) -> str:
    """The digest of a tree as it was read: equal to that of the log if every fate is right.

    As `tts.search.tree.Tree.digest` computes it. A step that was never written, because its prompt
    filled the context, is not in the log, so the digest of its tree differs.
    """
    sha = hashlib.sha256()
    for record in sorted(thoughts, key=lambda record: record.path):
        if record.fate is not None:
            ids = ",".join(map(str, record.thought.ids))
            path = ".".join(map(str, record.path))
            sha.update(f"{path}|{ids}|{record.thought.stop}|{record.fate}\n".encode())
    return sha.hexdigest()


def _thoughts(problem: ProblemState) -> dict[NodePath, ThoughtRecord]:
    """Every thought with its times and its score."""
    used = {event.node: began + event.t for began, event in problem.used}
    nodes = {}
    for node, thought, began, event in problem.thoughts():
        sent, speculative = began + event.sent, event.kind == "speculative"
        nodes[node] = ThoughtRecord(
            node,
            thought,
            sent,
            began + event.done,
            speculative,
            used.get(event.node) if speculative else sent,
        )
    for session, scored in reversed(problem.scored):  # a node's first score is the one that holds
        if record := nodes.get(scored.node):
            record.score, record.reused = scored.score, scored.cached
            record.critique = scored.critique
            record.scored = session + (scored.t if scored.cached else scored.done)
    return nodes


def _settle(problem: ProblemState, nodes: dict[NodePath, ThoughtRecord]) -> None:
    """Give every thought its fate, and the time from which the log shows it."""
    expanded: dict[NodePath, float] = {}
    """When the first child of a node was asked for."""
    for path, record in nodes.items():
        if record.used is not None:
            expanded[path[:-1]] = min(record.used, expanded.get(path[:-1], record.used))
    solution = problem.solution
    completed = {done.node for done in solution.completions} if solution else set()
    in_tree = [record for record in nodes.values() if record.used is not None]
    for record in in_tree:
        record.fate = _fate(record, expanded, completed, solved=solution is not None)
    if solution and any(record.fate is Fate.SURPLUS for record in in_tree):
        _call_as_logged(solution.tree_digest, in_tree)
    _date(in_tree, expanded, problem.ended)


def _fate(
    record: ThoughtRecord,
    expanded: dict[NodePath, float],
    completed: set[NodePath],
    *,
    solved: bool,
) -> Fate:
    if record.path in completed:
        return Fate.COMPLETED
    if record.path in expanded:
        return Fate.EXPANDED
    if not solved:
        return Fate.OPEN
    goes_on = record.thought.stop is Stop.STEP and record.thought.text.strip()
    return Fate.PRUNED if goes_on else Fate.SURPLUS


def _call_as_logged(digest: str, in_tree: list[ThoughtRecord]) -> None:
    """Chains that ended and were not chosen: some searches call them pruned; the digest knows."""
    if tree_digest(in_tree) == digest:
        return
    surplus = [record for record in in_tree if record.fate is Fate.SURPLUS]
    for record in surplus:
        record.fate = Fate.PRUNED
    if tree_digest(in_tree) != digest:
        for record in surplus:
            record.fate = Fate.SURPLUS


def _date(
    in_tree: list[ThoughtRecord], expanded: dict[NodePath, float], ended: float | None
) -> None:
    """When each fate is first seen: a thought is kept when a child of it is asked for.

    It is pruned when, after its score, another of its depth is expanded; the rest is known at the
    end.
    """
    by_depth: dict[int, list[float]] = defaultdict(list)
    for path, asked in expanded.items():
        by_depth[len(path)].append(asked)
    for times in by_depth.values():
        times.sort()
    for record in in_tree:
        record.decided = expanded.get(record.path, ended)
        if record.fate is Fate.PRUNED:
            times = by_depth[len(record.path)]
            place = bisect_left(times, record.scored if record.scored else record.done)
            record.decided = times[place] if place < len(times) else ended
