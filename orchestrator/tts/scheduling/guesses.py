"""Speculative work: sent into empty slots of the generator only, and as long as it pays."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from .queue import Job, Queue, WorkKind
from .schedules import Policy, Schedule


class SpareSlots:
    """The generator's empty slots, for jobs that their searches may never ask for."""

    def __init__(
        self, policy: Policy, schedule: Schedule, generator: Queue, verifier: Queue
    ) -> None:
        self._policy, self._schedule = policy, schedule
        self._generator, self._verifier = generator, verifier

    def take(self, guesses: Iterable[Job], *, generating: bool) -> list[Job]:
        """Guesses to send now, of those that could be sent, which come best first.

        `generating`: whether the generator has just been given other work.
        """
        slots = self._slots(generating=generating)
        jobs: list[Job] = []
        if slots > 0:
            for job in guesses:
                if not self.pays(job.chance):
                    break
                self._generator.charge(job)
                jobs.append(job)
                if len(jobs) == slots:
                    break
        return jobs

    def overdrawn(self) -> list[Job]:
        """The least promising guesses in flight, as many as certain work has taken the slots of."""
        return heapq.nlargest(
            -self._generator.spare,
            self._generator.speculative,
            key=lambda job: (job.level, -job.chance, job.problem, job.work.node),
        )

    def promote(self, job: Job) -> None:
        """Make a guess in flight main work: its search has asked for it."""
        self._generator.refund(job)
        job.kind = WorkKind.MAIN
        self._generator.charge(job)

    def pays(self, chance: float) -> bool:
        """Whether one more request pays, given the chance that it is of use.

        Where a step of the engine takes t0 + t1 * load, one more request slows `load` others by t1
        / (t0 + t1 * load) each: together they lose the share of the engine's limit that the load
        has reached. On a shared device it slows the verifier just as much while that computes, and
        so costs twice as much; a verifier that writes is also slowed by the steps that run for the
        request alone, 1 / (load + 1) of its own (`gathering_pays`). Its expected gain is `chance`.
        Nothing is sent until the share is known: the load of main work varies enough to learn it,
        and speculation would hide that variation.
        """
        policy, jobs = self._policy, self._generator.jobs
        if policy.speculation == "always":
            return True
        share = self._generator.curve.share(jobs + 1)
        slowed = 2 if policy.one_device and self._verifier.jobs else 1
        alone = 1 / (jobs + 1) if policy.one_device and policy.verifier_writes else 0
        return share is not None and slowed * share + alone < chance

    def _slots(self, *, generating: bool) -> int:
        """Generator slots that speculation may take now."""
        speculation = self._policy.speculation
        if speculation == "off":
            return 0
        slots = self._schedule.spare(generating=generating)
        if slots > 0 and speculation == "auto" and (self._verifier_behind() or not self.pays(1.0)):
            return 0
        return slots

    def _verifier_behind(self) -> bool:
        """Whether thoughts that come sooner would only queue for the verifier.

        Scores that wait while it is idle do not: they wait for such thoughts. On a shared device
        these would slow it down, too: there it must not have more to do than the generator.
        """
        verifier = self._verifier
        if self._policy.one_device and verifier.jobs > self._generator.load:
            return True
        return bool(verifier.jobs) and verifier.pending > 0
