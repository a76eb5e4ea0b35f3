"""The scores of one problem: each distinct chain is asked of the verifier once. Pure.

A chain's key is all that its score depends on (the dialogue's token ids), so identical siblings
share a score. A score is locked at its first write. Equal requests coalesce: the first becomes a
job, the others wait for its answer. With `leader_first` the problem's first job goes alone, because
the others begin with the prefix that it brings into the engine's cache.
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
        """Lock a score that is known from elsewhere; the one that was locked first counts."""
        return self._scores.setdefault(key, score)

    def join(self, key: bytes, node: NodePath) -> bool:
        """Have a node wait for a score that is pending already; False if it is not."""
        if (pending := self._pending.get(key)) is None:
            return False
        pending.nodes.append(node)
        return True

    def ask(self, key: bytes, node: NodePath, job: Job) -> list[Job]:
        """A job asks for a new score on behalf of a node: the jobs that may go now."""
        self._pending[key] = _Pending(job, [node])
        return self._admit(job)

    def answer(self, key: bytes, score: float) -> list[NodePath]:
        """Lock the score that a job brought; returns the nodes that waited for it."""
        self._scores[key] = score
        return self._pending.pop(key).nodes

    def leave(self, key: bytes, node: NodePath) -> Job | None:
        """A node does not wait any more: the job that nobody waits for now, if it was the last."""
        if (pending := self._pending.get(key)) is None:
            return None
        if node in pending.nodes:
            pending.nodes.remove(node)
        if pending.nodes:
            return None
        del self._pending[key]
        return pending.job

    def withhold(self, job: Job) -> bool:
        """Forget a job that follows the leader; False if it does not: it may have been sent."""
        if job not in self._followers:
            return False
        self._followers.remove(job)
        return True

    def follow(self, job: Job) -> list[Job]:
        """A job was answered or dropped; if it was the leader, the jobs that may go now."""
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
