"""The tree of a problem from its log: every thought, its fate, and when that was decided."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tts.runs.events import LoggedThought
from tts.runs.state import ProblemState
from tts.search import Fate, NodePath


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
