"""Pieces of work, and the queue of one model with its budget."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import IntEnum

from ..search import Expand, Work


class Kind(IntEnum):
    """How certain it is that work is needed; smaller goes first."""

    MAIN = 0
    """Certain to be needed for a running problem."""
    EAGER = 1
    """First work of a queued problem."""
    SPECULATIVE = 2
    """Expansion of a thought that may yet be pruned."""


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work of one problem. `problem` is its place in the run, oldest first.

    `tokens` is the length of the request's prompt.
    """

    problem: int
    work: Work
    tokens: int
    kind: Kind

    @property
    def cost(self) -> int:
        """What it takes of its model's budget: one request, or its tokens."""
        return 1 if isinstance(self.work, Expand) else self.tokens


class Queue:
    """Jobs of one model, best first: by kind, then oldest problem, then as they were asked."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        """Cost of the jobs in flight."""
        self.jobs = 0
        """Jobs in flight."""
        self.pending_cost = 0
        self._heap: list[tuple[int, int, int, Job]] = []
        self._count = 0

    def __len__(self) -> int:
        """Pending jobs."""
        return len(self._heap)

    @property
    def busy(self) -> bool:
        """Whether anything is pending or in flight."""
        return bool(self._heap or self.jobs)

    def push(self, job: Job) -> None:
        """Take in a job."""
        heapq.heappush(self._heap, (job.kind, job.problem, self._count, job))
        self._count += 1
        self.pending_cost += job.cost

    def take(self) -> list[Job]:
        """The best jobs, as many as fit; their budget is charged until `ended`.

        A job never waits behind a worse one that fits; a job larger than the whole budget goes
        alone.
        """
        jobs: list[Job] = []
        while self._heap and (not self.used or self.used + self._heap[0][3].cost <= self.budget):
            job = heapq.heappop(self._heap)[3]
            self.pending_cost -= job.cost
            self.used += job.cost
            self.jobs += 1
            jobs.append(job)
        return jobs

    def ended(self, job: Job) -> None:
        """A job that was taken has been answered, has failed or was cancelled."""
        self.used -= job.cost
        self.jobs -= 1

    def drop(self, problem: int) -> None:
        """Forget the pending jobs of one problem."""
        self._heap = [entry for entry in self._heap if entry[1] != problem]
        heapq.heapify(self._heap)
        self.pending_cost = sum(entry[3].cost for entry in self._heap)
