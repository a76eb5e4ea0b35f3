"""Holds verifier work back until a batch is worth an engine step. Pure: times are arguments.

A verifier step on a GPU costs the same for a few tokens as for some hundreds, so single requests
waste it. A batch is sent when it has enough tokens, when all siblings that will be compared are
there (no more can join them), or when the oldest job has waited long enough.
"""

from __future__ import annotations

from enum import StrEnum

from tts.search import NodePath, Score

from .queue import Job

CLOCK_ERROR_S = 1e-6  # a timer may be early by its rounding


class Trigger(StrEnum):
    """The reason why a held job was released."""

    TOKENS = "tokens"
    GROUP = "group"
    """All scores of its sibling group have been asked for."""
    DEADLINE = "deadline"


class VerifierBatching:
    """The jobs that are held back."""

    def __init__(self, tokens: int, wait_s: float) -> None:
        """`tokens` let all held jobs go at once; none is held for longer than `wait_s` seconds."""
        self._tokens = tokens
        self._wait_s = wait_s
        self._held: list[tuple[float, Job]] = []
        self._complete: set[tuple[int, NodePath]] = set()

    @property
    def held(self) -> int:
        """Jobs held back."""
        return len(self._held)

    def add(self, job: Job, now: float) -> None:
        """Hold a job, starting at `now`."""
        self._held.append((now, job))

    def asked(self, problem: int, work: Score) -> None:
        """A search has asked for a score, held or known already: note if it completes a group."""
        if work.completes:
            self._complete.add((problem, work.group))

    def release(self, now: float) -> list[tuple[Job, Trigger]]:
        """The jobs that may go, in order of arrival."""
        if sum(job.tokens for _, job in self._held) >= self._tokens:
            released = [(job, Trigger.TOKENS) for _, job in self._held]
            self._held.clear()
        else:
            released = []
            kept = []
            for since, job in self._held:
                if isinstance(job.work, Score) and (job.problem, job.work.group) in self._complete:
                    released.append((job, Trigger.GROUP))
                elif since + self._wait_s <= now + CLOCK_ERROR_S:
                    released.append((job, Trigger.DEADLINE))
                else:
                    kept.append((since, job))
            self._held = kept
        self._complete.clear()
        return released

    def due(self) -> float | None:
        """The time by which the oldest job must go; None if nothing is held."""
        return self._held[0][0] + self._wait_s if self._held else None

    def drop(self, problem: int) -> None:
        """Forget the held jobs of one problem."""
        self._held = [(since, job) for since, job in self._held if job.problem != problem]

    def drop_job(self, job: Job) -> bool:
        """Forget one job; False if it is not held."""
        before = self.held
        self._held = [(since, held) for since, held in self._held if held is not job]
        return self.held < before
