"""Holds back scores that may turn out not to be needed, so that fewer are computed. Pure.

The verifier cannot drop a request from a step that has begun. So each problem has only enough
tokens of such scores in flight to keep the verifier's steps full; the others wait and may be
withdrawn. They are sent in the order of their paths, which also breaks ties in ranking, so that
more of the waiting ones are soon outranked.

Several problems together may have more for the verifier than keeps it busy. While it is crowded,
scores that are needed (`Search.needs`) go before those that may not be: the needed ones go at
once, the others wait for room, in which the problems take turns. Not so on a shared device: there a
step of the verifier stops the generator, and whether emptier steps pay differs from case to case.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field

from .queue import Job

STEPS = 2
"""A problem's share in steps of the verifier: one that computes, and one to follow it at once."""

CROWD = 4
"""So many steps of the verifier, in flight or pending, crowd it. They are counted in tokens of
prompts, most of which it finds in its cache: with 2 its steps are too empty, and a simulated case
was 3% slower than without the rule."""


@dataclass(eq=False, slots=True)
class _Share:
    """One problem's scores."""

    problem: int
    held: list[Job] = field(default_factory=list)
    """Those held back, by path."""
    held_tokens: int = 0
    let_go: set[Job] = field(default_factory=set)
    """Those that were let go and have not ended."""
    used: int = 0
    """Tokens of these."""


class HeldScores:
    """The jobs held back, and how much of each problem's share is in use."""

    def __init__(self, step_tokens: int | None, *, shared: bool = False) -> None:
        """`step_tokens`: the most that the verifier computes in a step; None: hold nothing back.

        `shared`: whether both engines compute on the same device; then nothing crowds the verifier.
        """
        self._tokens = math.inf if step_tokens is None else STEPS * step_tokens
        self._crowd = math.inf if step_tokens is None or shared else CROWD * step_tokens
        self._shares: dict[int, _Share] = {}
        self._needed: dict[Job, None] = {}
        """The jobs held back that are needed, the first to be so first."""
        self.held = 0
        """Jobs held back."""

    def crowded_out(self, priority: int) -> int:
        """Tokens of the jobs of this priority or more that wait for nothing but room."""
        return sum(
            self._waiting(share)
            for share in self._shares.values()
            if share.held and share.held[0].priority >= priority
        )

    def add(self, job: Job) -> None:
        """Hold a job back until it is released."""
        share = self._shares.setdefault(job.problem, _Share(job.problem))
        insort(share.held, job, key=lambda each: each.work.node)
        share.held_tokens += job.tokens
        self.held += 1
        if job.needed:
            self._needed[job] = None

    def needed(self, job: Job) -> None:
        """A score that might not have been needed is; it may be asked for later."""
        job.needed = True
        share = self._shares.get(job.problem)
        if share and job in share.held:
            self._needed[job] = None

    def release(self, load: int) -> list[Job]:
        """The jobs that may go now, beside `load` tokens that the verifier has already.

        Until it is crowded the best of each problem, as many as fit its share; one larger than that
        goes alone. Once it is crowded, those that are needed.
        """
        jobs: list[Job] = []
        while self.held and load < self._crowd and (share := self._turn()):
            job = share.held[0]
            share.let_go.add(job)
            share.used += job.tokens
            self.drop_job(job)
            load += job.tokens
            jobs.append(job)
        if self._needed and load >= self._crowd:
            needed = list(self._needed)
            for job in needed:
                self.drop_job(job)
            jobs += needed
        return jobs

    def ended(self, job: Job) -> None:
        """A released job has ended or was dropped."""
        share = self._shares.get(job.problem)
        if share and job in share.let_go:
            share.let_go.remove(job)
            share.used -= job.tokens
            self._tidy(share)

    def drop(self, problem: int) -> None:
        """Forget one problem."""
        if share := self._shares.pop(problem, None):
            self.held -= len(share.held)
            for job in share.held:
                self._needed.pop(job, None)

    def drop_job(self, job: Job) -> bool:
        """Hold one job back no longer; False if it is not held."""
        share = self._shares.get(job.problem)
        if share is None or job not in share.held:
            return False
        share.held.remove(job)
        share.held_tokens -= job.tokens
        self.held -= 1
        self._needed.pop(job, None)
        self._tidy(share)
        return True

    def _turn(self) -> _Share | None:
        """The problem whose turn it is, of those whose next job fits their share.

        That with the highest priority, then with the least in flight, then the oldest.
        """
        return min(
            (share for share in self._shares.values() if share.held and self._fits(share)),
            key=lambda share: (-share.held[0].priority, share.used, share.problem),
            default=None,
        )

    def _fits(self, share: _Share) -> bool:
        return not share.used or share.used + share.held[0].tokens <= self._tokens

    def _waiting(self, share: _Share) -> int:
        """Tokens of the jobs that would go if the verifier were not crowded."""
        if not self._fits(share):
            return 0
        return int(min(share.held_tokens, max(share.held[0].tokens, self._tokens - share.used)))

    def _tidy(self, share: _Share) -> None:
        """Drop a share that holds nothing and has nothing in use."""
        if not share.held and not share.let_go:
            self._shares.pop(share.problem, None)
