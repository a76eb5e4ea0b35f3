"""The scores of one problem: the verifier scores each distinct chain once. Pure.

A chain's key is the dialogue's token ids, on which alone its score depends, so identical siblings
share a score. A score is locked at its first write. Equal requests coalesce: the first becomes a
job, the others wait for its answer. With `leader_first` the problem's first job goes alone, because
it fills the engine's prefix cache for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from tts.scheduling import Job
from tts.search import NodePath


@dataclass(slots=True)
class _Pending:
    """A score that is asked for and not answered, and the nodes that wait for it."""

    job: Job
    nodes: list[NodePath]


class ScoreCache:
    """Locked and pending scores by key."""

    def __init__(self, *, leader_first: bool) -> None:
        self._leader_first = leader_first
        self._scores: dict[bytes, float] = {}
        self._pending: dict[bytes, _Pending] = {}
        self._leader: Job | None = None
        self._followers: list[Job] = []

    def get(self, key: bytes) -> float | None:
        """The locked score; None if there is none yet."""
        return self._scores.get(key)

    def lock(self, key: bytes, score: float) -> float:
        """Lock a score from another source; an earlier one is kept."""
        return self._scores.setdefault(key, score)

    def join(self, key: bytes, node: NodePath) -> bool:
        """Let a node wait for a pending score; False if it is not pending."""
        if (pending := self._pending.get(key)) is None:
            return False
        pending.nodes.append(node)
        return True

    def ask(self, key: bytes, node: NodePath, job: Job) -> list[Job]:
        """Add a job for a new score on behalf of a node; returns the jobs that may go now."""
        self._pending[key] = _Pending(job, [node])
        return self._admit(job)

    def answer(self, key: bytes, score: float) -> list[NodePath]:
        """Lock the score from a job; returns the nodes that waited for it."""
        self._scores[key] = score
        return self._pending.pop(key).nodes

    def job(self, key: bytes) -> Job | None:
        """The job of a pending score; None if it is not pending."""
        pending = self._pending.get(key)
        return pending.job if pending else None

    def leave(self, key: bytes, node: NodePath) -> Job | None:
        """A node no longer waits; returns its job if no other node waits for it."""
        if (pending := self._pending.get(key)) is None:
            return None
        if node in pending.nodes:
            pending.nodes.remove(node)
        if pending.nodes:
            return None
        del self._pending[key]
        return pending.job

    def withhold(self, job: Job) -> bool:
        """Forget a job that waits for the leader; False if it does not: it may have been sent."""
        if job not in self._followers:
            return False
        self._followers.remove(job)
        return True

    def follow(self, job: Job) -> list[Job]:
        """A job was answered or dropped; returns the jobs that may go now if it was the leader."""
        if job is not self._leader:
            return []
        self._leader, followers = None, self._followers
        self._followers = []
        return [admitted for follower in followers for admitted in self._admit(follower)]

    def _admit(self, job: Job) -> list[Job]:
        if self._leader:
            self._followers.append(job)
            return []
        if self._leader_first and not self._scores:
            self._leader = job
        return [job]
