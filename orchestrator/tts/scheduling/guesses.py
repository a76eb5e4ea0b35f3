"""Speculative work: sent into empty slots of the generator only, and as long as it pays."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from tts.base.choices import SpeculationName

from .queue import Job, Queue, WorkKind
from .schedules import Schedule


class SpareSlots:
    """The generator's empty slots, for jobs that their searches may never ask for."""

    def __init__(
        self,
        name: SpeculationName,
        schedule: Schedule,
        generator: Queue,
        verifier: Queue,
        *,
        one_device: bool,
    ) -> None:
        """`one_device`: whether both engines compute on it."""
        self._name = name
        self._schedule = schedule
        self._generator, self._verifier = generator, verifier
        self._one_device = one_device

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
        so costs twice as much. Its expected gain is `chance`. Nothing is sent until the share is
        known: the load of main work varies enough to learn it, and speculation would hide that
        variation.
        """
        if self._name == "always":
            return True
        share = self._generator.curve.share(self._generator.jobs + 1)
        slowed = 2 if self._one_device and self._verifier.jobs else 1
        return share is not None and slowed * share < chance

    def _slots(self, *, generating: bool) -> int:
        """Generator slots that speculation may take now."""
        if self._name == "off":
            return 0
        slots = self._schedule.spare(generating=generating)
        if slots > 0 and self._name == "auto" and (self._verifier_behind() or not self.pays(1.0)):
            return 0
        return slots

    def _verifier_behind(self) -> bool:
        """Whether thoughts that come sooner would only queue for the verifier.

        Scores that wait while it is idle do not: they wait for such thoughts. On a shared device
        these would slow it down, too: there it must not have more to do than the generator.
        """
        verifier = self._verifier
        if self._one_device and verifier.jobs > self._generator.load:
            return True
        return bool(verifier.jobs) and verifier.pending > 0
