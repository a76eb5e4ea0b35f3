"""One budget per model; main work before eager work before speculative work.

The scheduler holds the work that the running searches ask for and says what to send next. It
knows neither engines nor time: the driver adds jobs, takes what may be sent now, and reports what
has ended. Schedules change only the order in which work is sent, never the trees.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from ..search import Expand, Work

Schedule = Literal["lockstep", "decoupled"]


class Kind(IntEnum):
    """How certain it is that work is needed; smaller goes first."""

    MAIN = 0
    """Certain to be needed for a running problem."""
    EAGER = 1
    """First work of a queued problem."""
    SPECULATIVE = 2
    """Expansion of a thought that may yet be pruned."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be in flight: N_LLM generator requests, N_PRM verifier tokens."""

    schedule: Schedule
    generator_requests: int
    verifier_tokens: int


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work of one problem. `problem` is its place in the run, oldest first.

    `tokens` is the length of the request's prompt.
    """

    problem: int
    work: Work
    tokens: int
    kind: Kind


class _Queue:
    """Jobs of one model, best first: by kind, then oldest problem, then as they were asked."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self.jobs = 0
        """Jobs in flight."""
        self.pending_cost = 0
        self._heap: list[tuple[int, int, int, int, Job]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, job: Job, cost: int) -> None:
        heapq.heappush(self._heap, (job.kind, job.problem, self._count, cost, job))
        self._count += 1
        self.pending_cost += cost

    def pop(self) -> Job | None:
        """The best job if it fits the budget. A job never waits behind a worse one that fits."""
        if not self._heap:
            return None
        cost = self._heap[0][3]
        if self.used and self.used + cost > self.budget:
            return None
        job = heapq.heappop(self._heap)[4]
        self.pending_cost -= cost
        self.used += cost
        self.jobs += 1
        return job

    def drop(self, problem: int) -> None:
        """Forget the pending jobs of one problem."""
        self.pending_cost -= sum(entry[3] for entry in self._heap if entry[1] == problem)
        self._heap = [entry for entry in self._heap if entry[1] != problem]
        heapq.heapify(self._heap)

    def release(self, cost: int) -> None:
        self.used -= cost
        self.jobs -= 1


class Scheduler:
    """Queues and budgets of both models under one policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._generator = _Queue(policy.generator_requests)
        self._verifier = _Queue(policy.verifier_tokens)
        self._running = 0

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests in flight: generator, verifier."""
        return self._generator.jobs, self._verifier.jobs

    @property
    def idle(self) -> bool:
        """Nothing in flight and nothing pending."""
        return not (any(self.in_flight) or self._generator or self._verifier)

    def add(self, job: Job) -> None:
        """Take in work that a search asks for."""
        self._queue(job).push(job, _cost(job))

    def take(self) -> list[Job]:
        """The jobs to send now; their budget is charged until `ended`."""
        jobs: list[Job] = []
        if self._may_generate():
            while job := self._generator.pop():
                jobs.append(job)
        if self._may_score():
            while job := self._verifier.pop():
                jobs.append(job)
        return jobs

    def ended(self, job: Job) -> None:
        """A job that was taken has been answered, has failed or was cancelled."""
        self._queue(job).release(_cost(job))

    def wants_problem(self) -> bool:
        """Whether a queued problem should be started now.

        Lockstep: when none is running. Decoupled: when the generator has a free slot that no
        running problem wants, unless the verifier is so far behind that more problems would only
        lengthen its queue.
        """
        if self.policy.schedule == "lockstep":
            return self._running == 0
        generator, verifier = self._generator, self._verifier
        return (
            not generator
            and generator.used < generator.budget
            and verifier.pending_cost < verifier.budget
        )

    def problem_started(self) -> None:
        """A queued problem has become a running one."""
        self._running += 1

    def problem_done(self, problem: int) -> None:
        """A running problem has its result; what it still had pending is dropped."""
        self._running -= 1
        self._generator.drop(problem)
        self._verifier.drop(problem)

    def _queue(self, job: Job) -> _Queue:
        return self._generator if isinstance(job.work, Expand) else self._verifier

    def _may_generate(self) -> bool:
        """In lockstep a phase of one model ends before the other's begins."""
        return self.policy.schedule != "lockstep" or not self._verifier.jobs

    def _may_score(self) -> bool:
        return self.policy.schedule != "lockstep" or not (self._generator.jobs or self._generator)


def _cost(job: Job) -> int:
    """What a job takes of its model's budget: one request, or its tokens."""
    return 1 if isinstance(job.work, Expand) else job.tokens
