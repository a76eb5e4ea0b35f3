"""Scores that equal chains share: each distinct chain of a problem is scored once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tts.scheduling import Job
from tts.search import NodePath, Scored


@dataclass(slots=True)
class _Pending:
    """A score that is asked for and not answered, and the nodes that wait for it."""

    job: Job
    nodes: list[NodePath]


class SharedScores:
    """The scores of one problem by key, which is all that a score depends on.

    The first score of a chain counts for all that are equal to it.
    """

    def __init__(self, resumed: Mapping[NodePath, Scored]) -> None:
        """`resumed` has the scores of earlier sessions."""
        self._resumed = resumed
        self._scores: dict[bytes, Scored] = {}
        self._pending: dict[bytes, _Pending] = {}

    @property
    def empty(self) -> bool:
        """Whether no chain has a score."""
        return not self._scores

    def find(self, key: bytes, node: NodePath) -> Scored | None:
        """The score of a node whose chain has one."""
        scored = self._scores.get(key) or self._resumed.get(node)
        return replace(self._lock(key, scored), node=node) if scored else None

    def pending(self, key: bytes) -> Job | None:
        """The job of a score that is asked for."""
        pending = self._pending.get(key)
        return pending.job if pending else None

    def add(self, key: bytes, job: Job) -> None:
        """Note that a score is asked for."""
        self._pending[key] = _Pending(job, [job.work.node])

    def join(self, key: bytes, node: NodePath) -> None:
        """Let a node wait for a score that is asked for."""
        self._pending[key].nodes.append(node)

    def leave(self, key: bytes, node: NodePath) -> Job | None:
        """Let a node wait no longer; the job, if no other node waits for it."""
        pending = self._pending.get(key)
        if pending is None or node not in pending.nodes:
            return None
        pending.nodes.remove(node)
        return None if pending.nodes else self._pending.pop(key).job

    def settle(self, key: bytes, fresh: Scored) -> tuple[Scored, list[NodePath]]:
        """Take in an answer: the score of its chain, and the nodes that wait for it."""
        return self._lock(key, fresh), self._pending.pop(key).nodes

    def _lock(self, key: bytes, scored: Scored) -> Scored:
        """The score of all chains with this key: the first that came."""
        return self._scores.setdefault(key, replace(scored, request=key))
