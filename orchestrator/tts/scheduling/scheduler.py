"""One budget per model; main work before eager work before speculative work.

The scheduler holds the work that running searches ask for and decides what to send next. It knows
neither engines nor a clock: the driver adds jobs, sends those that it is given, and reports the
jobs that have ended. Schedules change only the order in which work is sent, never the trees.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tts.search import Expand, Score, Work

from .held_scores import HeldScores
from .queue import Job, Queue, WorkKind
from .schedules import ScheduleName, new_schedule

SpeculationName = Literal["off", "auto", "always"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits in flight: N_LLM generator requests; N_PRM verifier tokens, or critiques."""

    schedule: ScheduleName
    generator_requests: int
    verifier_limit: int
    """Tokens of prompts; of a verifier that writes critiques, these."""
    problems: int | None = None
    """Most problems that run at the same time; None: as many as the schedule wants."""
    speculation: SpeculationName = "auto"
    """Whether empty slots are filled with work that may not be needed; `auto`: while it pays."""
    prefetch: bool = False
    """Send a problem's prompts ahead of the siblings that begin with them."""
    shared: bool = False
    """Both engines compute on the same device, and take its time from each other."""
    verifier_writes: bool = False
    """Whether the verifier decodes, as the generator does: then scores join it at any time, and
    none waits for others."""
    verifier_step_tokens: int | None = None
    """Most tokens that the verifier computes in a step; None: not known."""


class Scheduler:
    """Queues and budgets of both models under one policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._schedule = new_schedule(
            policy.schedule, shared=policy.shared, writes=policy.verifier_writes
        )
        self._generator = Queue(policy.generator_requests)
        self._verifier = Queue(policy.verifier_limit)
        self._held_scores = HeldScores(
            policy.verifier_step_tokens if policy.schedule == "decoupled" else None,
            shared=policy.shared,
        )
        self._widths: dict[int, int] = {}
        """The steps that the search of each running problem asked for at first."""

    @property
    def in_flight(self) -> tuple[int, int]:
        """Number of requests in flight: of the generator, of the verifier."""
        return self._generator.jobs, self._verifier.jobs

    @property
    def pending(self) -> tuple[int, int]:
        """The backlog, jobs that wait to be sent: generator, verifier."""
        return self._generator.pending, self._verifier.pending + self._held_scores.held

    def wants_problem(self, priority: int) -> bool:
        """Whether a queued problem of this priority should start now."""
        most = self._policy.problems
        if most is not None and len(self._widths) >= most:
            return False
        self._verifier.held_cost = self._held_scores.crowded_out(priority)
        return self._schedule.wants_problem(
            self._generator, self._verifier, widths=self._widths.values(), priority=priority
        )

    def problem_started(self, problem: int, first: Iterable[Work]) -> None:
        """A problem has started, and its search asks for this first.

        A search that works step by step will keep asking for about as many steps at once; one that
        asks for whole chains asks for nothing more.
        """
        self._widths[problem] = sum(isinstance(work, Expand) and not work.whole for work in first)

    def take(self) -> list[Job]:
        """Jobs to send now; they are charged to their budgets until they have `ended`."""
        return self._schedule.take(self._generator, self._verifier)

    def add(self, job: Job) -> None:
        """Take in work that a search asks for, or hold it back while it may not be needed."""
        if isinstance(job.work, Score) and job.work.may_be_pruned:
            self._held_scores.add(job)
            self._release()
        else:
            self._queue(job).push(job)

    def ended(self, job: Job) -> None:
        """A job that was sent has been answered, has failed or was cancelled."""
        self._queue(job).ended(job)
        self._held_scores.ended(job)
        self._release()

    def drop(self, job: Job) -> bool:
        """Forget a job that has not been sent; False if it has been."""
        if self._held_scores.drop_job(job):
            return True
        if not self._queue(job).drop(lambda each: each is job):
            return False
        self._held_scores.ended(job)
        self._release()
        return True

    def needed(self, job: Job) -> None:
        """A score that might not have been needed is: it goes before those that may not be."""
        self._held_scores.needed(job)
        self._release()

    def problem_ended(self, problem: int) -> None:
        """A problem has ended; its pending jobs are dropped."""
        self._widths.pop(problem, None)
        for queue in (self._generator, self._verifier):
            queue.drop(lambda job: job.problem == problem)
        self._held_scores.drop(problem)
        self._release()

    def learn(self, job: Job, load: float, tokens: int, seconds: float) -> None:
        """An engine has answered a request with `tokens`; `load`: mean requests in flight."""
        self._queue(job).curve.add(load, tokens if job.generates or tokens else 1, seconds)

    def _release(self) -> None:
        """Queue the scores that are held back no longer."""
        for job in self._held_scores.release(self._verifier.used + self._verifier.pending_cost):
            self._verifier.push(job)

    def _queue(self, job: Job) -> Queue:
        return self._generator if job.generates else self._verifier

    # What follows is speculation's: the rest is a whole without it.

    def take_guesses(self, guesses: Iterable[Job], *, taken: bool) -> list[Job]:
        """Guesses to send now, of those that could be sent, which come best first.

        `taken`: whether the generator has just been given other work.
        """
        slots = self._slots(taken=taken)
        jobs: list[Job] = []
        if slots > 0:
            for job in guesses:
                if not self.pays(job.chance):
                    break
                self._generator.started(job)
                jobs.append(job)
                if len(jobs) == slots:
                    break
        return jobs

    def overdrawn(self) -> list[Job]:
        """The least promising guesses in flight, as many as certain work has taken the slots of."""
        return heapq.nlargest(
            -self._generator.spare,
            self._generator.guesses,
            key=lambda job: (job.level, -job.chance, job.problem, job.work.node),
        )

    def promote(self, job: Job) -> None:
        """A search has asked for the work of a speculative job in flight: it becomes main work."""
        self._generator.ended(job)
        job.kind = WorkKind.MAIN
        self._generator.started(job)

    def pays(self, chance: float) -> bool:
        """Whether one more request pays, given the chance that it is of use.

        Where a step of the engine takes t0 + t1 * load, one more request slows `load` others by t1
        / (t0 + t1 * load) each: together they lose the share of the engine's limit that the load
        has reached. On a shared device it slows the verifier just as much while that computes, and
        so costs twice as much. Its expected gain is `chance`. Nothing is sent until the share is
        known: the load of main work varies enough to learn it, and speculation would hide that
        variation.
        """
        if self._policy.speculation == "always":
            return True
        share = self._generator.curve.share(self._generator.jobs + 1)
        slowed = 2 if self._policy.shared and self._verifier.jobs else 1
        return share is not None and slowed * share < chance

    def _slots(self, *, taken: bool) -> int:
        """Generator slots that speculation may take now."""
        speculation = self._policy.speculation
        if speculation == "off":
            return 0
        slots = self._schedule.spare(self._generator, self._verifier, taken=taken)
        if slots > 0 and speculation == "auto" and (self._verifier_behind() or not self.pays(1.0)):
            return 0
        return slots

    def _verifier_behind(self) -> bool:
        """Whether thoughts that come sooner would only queue for the verifier.

        Scores that wait while it is idle do not: they wait for such thoughts. On a shared device
        these would slow it down, too: there it must not have more to do than the generator.
        """
        verifier = self._verifier
        if self._policy.shared and verifier.jobs > self._generator.used:
            return True
        return bool(verifier.jobs) and not verifier.empty
