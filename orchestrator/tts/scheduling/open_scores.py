"""Holds back scores that may turn out not to be needed, so that fewer are computed. Pure.

The verifier cannot drop a request from a step that has begun. So each problem has only enough
tokens of such scores in flight to keep the verifier's steps full; the others wait and may be
withdrawn. They are sent in the order of their paths, which also breaks ties in ranking, so that
more of the waiting ones are soon outranked.

Several problems together may have more for the verifier than keeps it busy. While it is crowded,
scores that are needed (`Search.needed`) go before those that may not be: the needed ones go at
once, the others wait for room, in which the problems take turns. Not so on a shared device: there a
step of the verifier stops the generator, and whether emptier steps pay differs from case to case.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

from tts.search import NodePath

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
    used: int = 0
    """Tokens of the jobs that were let go and have not ended."""
    held: list[tuple[NodePath, int, Job]] = field(default_factory=list)
    """A heap by path."""
    held_tokens: int = 0
    """Tokens of these."""


class OpenScores:
    """The jobs held back, and how much of each problem's share is in use."""

    def __init__(self, step_tokens: int | None, *, shared: bool = False) -> None:
        """`step_tokens`: the most that the verifier computes in a step; None: hold nothing back.

        `shared`: whether both engines compute on the same device; then nothing crowds the verifier.
        """
        self._tokens = math.inf if step_tokens is None else STEPS * step_tokens
        self._crowd = math.inf if step_tokens is None or shared else CROWD * step_tokens
        self._shares: dict[int, _Share] = {}
        self._let_go: set[Job] = set()
        """The jobs that count in `used`."""
        self._needed: dict[Job, None] = {}
        """The jobs held back that are needed, the first to be so first."""
        self._count = 0
        self.held = 0
        """Jobs held back."""

    def crowded_out(self, priority: int) -> int:
        """Tokens of the jobs of this priority or more that wait for nothing but room."""
        return sum(
            self._waiting(share)
            for share in self._shares.values()
            if share.held and share.held[0][-1].priority >= priority
        )

    def add(self, job: Job) -> None:
        """Hold a job back until it is released."""
        share = self._shares.setdefault(job.problem, _Share(job.problem))
        heapq.heappush(share.held, (job.work.node, self._count, job))
        share.held_tokens += job.tokens
        self._count += 1
        self.held += 1
        if job.needed:
            self._needed[job] = None

    def needed(self, job: Job) -> None:
        """A score that might not have been needed is; it may be asked for later."""
        job.needed = True
        share = self._shares.get(job.problem)
        if share and any(entry[-1] is job for entry in share.held):
            self._needed[job] = None

    def release(self, load: int) -> list[Job]:
        """The jobs that may go now, beside `load` tokens that the verifier has already.

        Until it is crowded the best of each problem, as many as fit its share; one larger than that
        goes alone. Once it is crowded, those that are needed.
        """
        jobs: list[Job] = []
        while self.held and load < self._crowd and (share := self._turn()):
            job = heapq.heappop(share.held)[-1]
            self.held -= 1
            share.held_tokens -= job.tokens
            share.used += job.tokens
            self._needed.pop(job, None)
            self._let_go.add(job)
            load += job.tokens
            jobs.append(job)
        if self._needed and load >= self._crowd:
            needed, self._needed = self._needed, {}
            for job in needed:
                self._forget(self._shares[job.problem], job)
            jobs += needed
        return jobs

    def ended(self, job: Job) -> None:
        """A released job has ended or was dropped."""
        if job in self._let_go:
            self._let_go.remove(job)
            share = self._shares[job.problem]
            share.used -= job.tokens
            self._tidy(share)

    def drop(self, problem: int) -> None:
        """Forget one problem."""
        if share := self._shares.pop(problem, None):
            self.held -= len(share.held)
            for *_, job in share.held:
                self._needed.pop(job, None)
            self._let_go = {job for job in self._let_go if job.problem != problem}

    def drop_job(self, job: Job) -> bool:
        """Forget one job; False if it is not held."""
        share = self._shares.get(job.problem)
        return share is not None and self._forget(share, job)

    def _turn(self) -> _Share | None:
        """The problem whose turn it is, of those whose next job fits their share.

        That with the highest priority, then with the least in flight, then the oldest.
        """
        return min(
            (share for share in self._shares.values() if share.held and self._fits(share)),
            key=lambda share: (-share.held[0][-1].priority, share.used, share.problem),
            default=None,
        )

    def _fits(self, share: _Share) -> bool:
        return not share.used or share.used + share.held[0][-1].tokens <= self._tokens

    def _waiting(self, share: _Share) -> int:
        """Tokens of the jobs that would go if the verifier were not crowded."""
        if not self._fits(share):
            return 0
        return int(min(share.held_tokens, max(share.held[0][-1].tokens, self._tokens - share.used)))

    def _forget(self, share: _Share, job: Job) -> bool:
        """Hold a job back no longer; False if it is not held."""
        kept = [entry for entry in share.held if entry[-1] is not job]
        if len(kept) == len(share.held):
            return False
        heapq.heapify(kept)
        share.held = kept
        self.held -= 1
        share.held_tokens -= job.tokens
        self._needed.pop(job, None)
        self._tidy(share)
        return True

    def _tidy(self, share: _Share) -> None:
        """Drop a share that holds nothing and has nothing in use."""
        if not share.held and not share.used:
            self._shares.pop(share.problem, None)
