"""Holds back scores that may turn out not to be needed, so that fewer are computed. Pure.

The verifier cannot drop a request from a step that has begun. So each problem has only enough
tokens of such scores in flight to keep the verifier's steps full; the others wait and may be
withdrawn. They are sent in the order of their paths, which also breaks ties in ranking, so that
more of the waiting ones are soon outranked.

Several problems together may have more for the verifier than keeps it busy. While it is crowded,
scores that are needed (`Hints.needs`) go before those that may not be: the needed ones go at
once, the others wait for room, in which the problems take turns. Not so where both engines compute
on one device: there a step of the verifier stops the generator, and whether emptier steps pay
differs from case to case.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field

from .queue import Job

STEPS = 2
"""A problem's share in steps of the verifier: one that computes, and one to follow it at once."""

CROWD = 4
"""Steps of the verifier, in flight or pending, that crowd it. They are counted in tokens of
prompts, most of which are in its cache: with 2 its steps are too empty, and a simulated case was 3%
slower than without the rule."""


@dataclass(eq=False, slots=True)
class _Share:
    """One problem's scores."""

    problem: int
    waiting: list[Job] = field(default_factory=list)
    """Jobs held back, by path."""
    waiting_tokens: int = 0
    released: set[Job] = field(default_factory=set)
    """Released jobs that have not ended."""
    released_tokens: int = 0


class HeldScores:
    """The jobs held back, and how much of each problem's share is in use."""

    def __init__(self, step_tokens: int | None, *, one_device: bool = False) -> None:
        """`step_tokens`: the most that the verifier computes in a step; None: hold nothing back.

        `one_device`: whether both engines compute on it; then nothing crowds the verifier.
        """
        self._tokens = math.inf if step_tokens is None else STEPS * step_tokens
        self._crowd = math.inf if step_tokens is None or one_device else CROWD * step_tokens
        self._shares: dict[int, _Share] = {}
        self._needed: dict[Job, None] = {}
        """The jobs held back that are needed, the first to be so first."""
        self.count = 0
        """Jobs held back."""

    def crowded_out(self, priority: int) -> int:
        """Tokens of the jobs of this priority or more that wait for nothing but room."""
        return sum(
            self._waiting(share)
            for share in self._shares.values()
            if share.waiting and share.waiting[0].priority >= priority
        )

    def add(self, job: Job) -> None:
        """Hold a job back until it is released."""
        share = self._shares.setdefault(job.problem, _Share(job.problem))
        insort(share.waiting, job, key=lambda each: each.work.node)
        share.waiting_tokens += job.tokens
        self.count += 1
        if job.needed:
            self._needed[job] = None

    def require(self, job: Job) -> None:
        """Note that a score is needed which might not have been; it may be added later."""
        job.needed = True
        share = self._shares.get(job.problem)
        if share and job in share.waiting:
            self._needed[job] = None

    def release(self, load: int) -> list[Job]:
        """The jobs that may go now, beside `load` tokens that the verifier has already.

        Until it is crowded the best of each problem, as many as fit its share; one larger than that
        goes alone. Once it is crowded, those that are needed.
        """
        jobs: list[Job] = []
        while self.count and load < self._crowd and (share := self._turn()):
            job = share.waiting[0]
            share.released.add(job)
            share.released_tokens += job.tokens
            self.drop_job(job)
            load += job.tokens
            jobs.append(job)
        if self._needed and load >= self._crowd:
            jobs += self._needed
            for job in list(self._needed):
                self.drop_job(job)
        return jobs

    def end(self, job: Job) -> None:
        """Give back the share of a released job that has ended or was dropped."""
        share = self._shares.get(job.problem)
        if share and job in share.released:
            share.released.remove(job)
            share.released_tokens -= job.tokens

    def drop(self, problem: int) -> None:
        """Forget one problem."""
        if share := self._shares.pop(problem, None):
            self.count -= len(share.waiting)
            for job in share.waiting:
                self._needed.pop(job, None)

    def drop_job(self, job: Job) -> bool:
        """Hold one job back no longer; False if it is not held."""
        share = self._shares.get(job.problem)
        if share is None or job not in share.waiting:
            return False
        share.waiting.remove(job)
        share.waiting_tokens -= job.tokens
        self.count -= 1
        self._needed.pop(job, None)
        return True

    def _turn(self) -> _Share | None:
        """The problem whose turn it is, of those whose next job fits their share.

        It is the one of the highest priority, then with the least in flight, then the oldest.
        """
        return min(
            (share for share in self._shares.values() if share.waiting and self._fits(share)),
            key=lambda share: (
                -share.waiting[0].priority,
                share.released_tokens,
                share.problem,
            ),
            default=None,
        )

    def _fits(self, share: _Share) -> bool:
        tokens = share.released_tokens
        return not tokens or tokens + share.waiting[0].tokens <= self._tokens

    def _waiting(self, share: _Share) -> int:
        """Tokens of the jobs that would go if the verifier were not crowded."""
        if not self._fits(share):
            return 0
        room = max(share.waiting[0].tokens, self._tokens - share.released_tokens)
        return int(min(share.waiting_tokens, room))
