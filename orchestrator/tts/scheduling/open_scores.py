"""Holds back scores that may turn out not to be needed, so that fewer are computed. Pure.

The verifier cannot drop a request from a step that has begun. So each problem has only enough
tokens of such scores in flight to keep the verifier's steps full; the others wait and may be
withdrawn. They are sent in the order of their paths, which also breaks ties in ranking, so that
more of the waiting ones are soon outranked.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from dataclasses import dataclass, field

from tts.search import NodePath, Score

from .queue import Job

STEPS = 2
"""A problem's share in steps of the verifier: one that computes, and one to follow it at once."""


@dataclass(slots=True)
class _Share:
    """One problem's scores."""

    used: int = 0
    """Tokens of the jobs that were let go and have not ended."""
    held: list[tuple[NodePath, int, Job]] = field(default_factory=list)
    """A heap by path."""


class OpenScores:
    """The jobs held back, and how much of each problem's share is in use."""

    def __init__(self, step_tokens: int | None) -> None:
        """`step_tokens`: the most that the verifier computes in a step; None: hold nothing back."""
        self._tokens = math.inf if step_tokens is None else STEPS * step_tokens
        self._shares: defaultdict[int, _Share] = defaultdict(_Share)
        self._count = 0

    @property
    def held(self) -> int:
        """Jobs held back."""
        return sum(len(share.held) for share in self._shares.values())

    def add(self, job: Job) -> list[Job]:
        """Take in a job; returns the jobs that may go now. A certainly needed job always may."""
        if not _is_open(job):
            return [job]
        share = self._shares[job.problem]
        heapq.heappush(share.held, (job.work.node, self._count, job))
        self._count += 1
        return self._release(share)

    def ended(self, job: Job) -> list[Job]:
        """A released job has ended or was dropped; returns the jobs that may go instead."""
        if not _is_open(job) or (share := self._shares.get(job.problem)) is None:
            return []
        share.used -= job.tokens
        return self._release(share)

    def drop(self, problem: int) -> None:
        """Forget one problem."""
        self._shares.pop(problem, None)

    def drop_job(self, job: Job) -> bool:
        """Forget one job; False if it is not held."""
        if (share := self._shares.get(job.problem)) is None:
            return False
        kept = [entry for entry in share.held if entry[-1] is not job]
        if len(kept) == len(share.held):
            return False
        heapq.heapify(kept)
        share.held = kept
        return True

    def _release(self, share: _Share) -> list[Job]:
        """The best of a problem's jobs, as many as fit; one larger than the share goes alone."""
        jobs: list[Job] = []
        while share.held:
            job = share.held[0][-1]
            if share.used and share.used + job.tokens > self._tokens:
                break
            heapq.heappop(share.held)
            share.used += job.tokens
            jobs.append(job)
        return jobs


def _is_open(job: Job) -> bool:
    return isinstance(job.work, Score) and job.work.need_open
