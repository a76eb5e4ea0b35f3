"""Pieces of work, and the queue of one model with its budget."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from tts.search import Expand, NodePath, Score

from .load_curve import LoadCurve


class WorkKind(IntEnum):
    """How certain it is that work is needed; smaller values go first."""

    MAIN = 0
    """Work that a running problem certainly needs."""
    EAGER = 1
    """The first work of a queued problem."""
    SPECULATIVE = 2
    """The expansion of a thought that may yet be pruned."""


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Prefill a problem's prompt once, ahead of the siblings that share it."""

    node: NodePath = ()
    """The root."""


@dataclass(eq=False, slots=True)
class Job:
    """One piece of work of one problem.

    `problem` is its number in the run, oldest first; `tokens` the length of the request's prompt.
    """

    problem: int
    work: Expand | Score | Prefetch
    tokens: int
    kind: WorkKind
    priority: int = 0
    """Priority of its problem; higher goes first."""
    level: int = 0
    """How many decisions of its search speculative work is ahead; else 0."""
    chance: float = 1.0
    """A rough probability that its search will ask for speculative work; else 1."""
    reused: int = 0
    """Tokens of a score's prompt that one before it began with."""
    cost: int = 1
    """What it takes of its model's budget: requests; of a verifier that only reads, tokens."""
    needed: bool = False
    """Whether its search has said that it needs this score (`Hints.needs`)."""

    @property
    def generates(self) -> bool:
        """Whether it goes to the generator."""
        return not isinstance(self.work, Score)


class Queue:
    """Jobs of one model, best first: by priority, kind, age of the problem, order of asking.

    Speculative jobs are not queued, only counted while in flight: they get the budget that main and
    eager jobs leave, and never delay them.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.curve = LoadCurve()
        """How long the model's requests took, over the requests in flight."""
        self.load = 0
        """Cost of the main and eager jobs in flight."""
        self.jobs = 0
        """Jobs in flight."""
        self.speculative: set[Job] = set()
        """Speculative jobs in flight."""
        self.pending_cost = 0
        """Cost of the jobs that wait to be sent."""
        self._heap: list[tuple[int, int, int, int, Job]] = []
        self._count = 0

    @property
    def pending(self) -> int:
        """Jobs that wait to be sent."""
        return len(self._heap)

    @property
    def spare(self) -> int:
        """Budget that no job in flight takes, or less than 0 where guesses are in others' way."""
        return self.budget - self.load - len(self.speculative)

    def is_outranked_by(self, priority: int) -> bool:
        """Whether work of this priority would go before everything that waits."""
        return not self._heap or priority > self._heap[0][-1].priority

    def push(self, job: Job) -> None:
        """Take in a job."""
        heapq.heappush(self._heap, (-job.priority, job.kind, job.problem, self._count, job))
        self._count += 1
        self.pending_cost += job.cost

    def take(self) -> list[Job]:
        """The best jobs that fit the budget, which is charged for them until their `refund`.

        A job never waits behind a worse one that fits; a job larger than the whole budget goes
        alone.
        """
        jobs: list[Job] = []
        while self._heap and (not self.load or self.load + self._heap[0][-1].cost <= self.budget):
            job = heapq.heappop(self._heap)[-1]
            self.pending_cost -= job.cost
            self.charge(job)
            jobs.append(job)
        return jobs

    def charge(self, job: Job) -> None:
        """Charge the budget for a job that is being sent."""
        self.jobs += 1
        if job.kind is WorkKind.SPECULATIVE:
            self.speculative.add(job)
        else:
            self.load += job.cost

    def refund(self, job: Job) -> None:
        """Return the budget of a job that was answered, failed or was cancelled."""
        self.jobs -= 1
        if job.kind is WorkKind.SPECULATIVE:
            self.speculative.discard(job)
        else:
            self.load -= job.cost

    def drop(self, unwanted: Callable[[Job], bool]) -> bool:
        """Forget the pending jobs that are `unwanted`; False if none is."""
        pending = self.pending
        self._heap = [entry for entry in self._heap if not unwanted(entry[-1])]
        heapq.heapify(self._heap)
        self.pending_cost = sum(entry[-1].cost for entry in self._heap)
        return self.pending < pending
