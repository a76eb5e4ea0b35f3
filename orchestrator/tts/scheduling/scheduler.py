"""One budget per model; main work before eager work before speculative work.

The scheduler holds the work that running searches ask for and decides what to send next. It knows
neither engines nor a clock: the driver adds jobs, sends those that it is given, and reports the
jobs that have ended. Schedules change only the order in which work is sent, never the trees.
"""

from __future__ import annotations

from collections.abc import Iterable

from tts.search import Expand, Score, Work

from .guesses import SpareSlots
from .held_scores import HeldScores
from .phases import new_schedule
from .queue import Job, Queue
from .schedules import Policy


class Scheduler:
    """Queues and budgets of both models under one policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        queues = Queue(policy.generator_requests), Queue(policy.verifier_limit)
        self._generator, self._verifier = queues
        self._widths: dict[int, int] = {}
        """The steps that the search of each running problem asked for at first."""
        self._schedule = new_schedule(policy, *queues, self._widths.values())
        self.spare_slots = SpareSlots(policy, self._schedule, *queues)
        step_tokens = policy.verifier_step_tokens if policy.schedule == "decoupled" else None
        self._held = HeldScores(step_tokens, one_device=policy.one_device)

    @property
    def in_flight(self) -> tuple[int, int]:
        """Number of requests in flight: of the generator, of the verifier."""
        return self._generator.jobs, self._verifier.jobs

    @property
    def pending(self) -> tuple[int, int]:
        """The backlog, jobs that wait to be sent: generator, verifier."""
        return self._generator.pending, self._verifier.pending + self._held.count

    def wants_problem(self, priority: int) -> bool:
        """Whether a queued problem of this priority should start now."""
        most = self.policy.problems
        if most is not None and len(self._widths) >= most:
            return False
        held_tokens = self._held.crowded_out(priority)
        return self._schedule.wants_problem(priority, held_tokens)

    def start_problem(self, problem: int, first: Iterable[Work]) -> None:
        """Count a problem as running whose search asks for this first.

        A search that works step by step will keep asking for about as many steps at once; one that
        asks for whole chains asks for nothing more.
        """
        self._widths[problem] = sum(isinstance(work, Expand) and not work.whole for work in first)

    def take(self) -> list[Job]:
        """Jobs to send now; they are charged to their budgets until they `end`."""
        return self._schedule.take()

    def add(self, job: Job) -> None:
        """Take in work that a search asks for, or hold it back while it may not be needed."""
        if isinstance(job.work, Score) and job.work.may_be_pruned:
            self._held.add(job)
            self._release()
        else:
            self._queue(job).push(job)

    def end(self, job: Job) -> None:
        """Return the budget of a job that was answered, failed or was cancelled."""
        self._queue(job).refund(job)
        self._held.end(job)
        self._release()

    def drop(self, job: Job) -> bool:
        """Forget a job that has not been sent; False if it has been."""
        if self._held.drop_job(job):
            return True
        if dropped := self._queue(job).drop(lambda each: each is job):
            self._held.end(job)
            self._release()
        return dropped

    def require(self, job: Job) -> None:
        """Let a score that its search needs after all go before those that it may not need."""
        self._held.require(job)
        self._release()

    def end_problem(self, problem: int) -> None:
        """Drop the pending jobs of a problem that has ended."""
        self._widths.pop(problem, None)
        for queue in (self._generator, self._verifier):
            queue.drop(lambda job: job.problem == problem)
        self._held.drop(problem)
        self._release()

    def learn(self, job: Job, load: float, tokens: int, seconds: float) -> None:
        """Learn from an answer of `tokens` how long an engine takes; `load`: mean in flight."""
        work = tokens or int(not job.generates)  # one step for a score that is only read
        self._queue(job).curve.add(load, work, seconds)

    def _release(self) -> None:
        """Queue the scores that are held back no longer."""
        for job in self._held.release(self._verifier.load + self._verifier.pending_cost):
            self._verifier.push(job)

    def _queue(self, job: Job) -> Queue:
        return self._generator if job.generates else self._verifier
