"""One budget per model; main work before eager work before speculative work.

The scheduler holds the work that the running searches ask for and says what to send next. It
knows neither engines nor time: the driver adds jobs, takes what may be sent now, and reports what
has ended. Schedules change only the order in which work is sent, never the trees.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..search import Expand
from .jobs import Job, Queue
from .schedules import ScheduleName, new_schedule


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be in flight: N_LLM generator requests, N_PRM verifier tokens."""

    schedule: ScheduleName
    generator_requests: int
    verifier_tokens: int
    problems: int | None = None
    """Problems that run at the same time at most; None: as many as the schedule wants."""


class Scheduler:
    """Queues and budgets of both models under one policy."""

    def __init__(self, policy: Policy) -> None:
        self._schedule = new_schedule(policy.schedule)
        self._generator = Queue(policy.generator_requests)
        self._verifier = Queue(policy.verifier_tokens)
        self._problems = policy.problems
        self._running = 0

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests in flight: generator, verifier."""
        return self._generator.jobs, self._verifier.jobs

    def add(self, job: Job) -> None:
        """Take in work that a search asks for."""
        self._queue(job).push(job)

    def wants_problem(self) -> bool:
        """Whether a queued problem should be started now, before anything more is taken."""
        if self._problems is not None and self._running >= self._problems:
            return False
        return self._schedule.wants_problem(self._generator, self._verifier, self._running)

    def take(self) -> list[Job]:
        """The jobs to send now; their budget is charged until `ended`."""
        return self._schedule.take(self._generator, self._verifier)

    def ended(self, job: Job) -> None:
        """A job that was taken has been answered, has failed or was cancelled."""
        self._queue(job).ended(job)

    def problem_started(self) -> None:
        """A queued problem has become a running one."""
        self._running += 1

    def problem_done(self, problem: int) -> None:
        """A running problem has its result; what it still had pending is dropped."""
        self._running -= 1
        self._generator.drop(problem)
        self._verifier.drop(problem)

    def _queue(self, job: Job) -> Queue:
        return self._generator if isinstance(job.work, Expand) else self._verifier
