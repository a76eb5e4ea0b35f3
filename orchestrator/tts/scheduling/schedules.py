"""The schedules: when each model may be sent work, and when a queued problem may start.

They differ only in the order of work. Each sees the same two queues, in which main work comes
before eager work, and eager before speculative work.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tts.base.choices import ScheduleName

from .gathering import Gathering
from .phases import Alternating, Phased
from .queue import Job, Queue


class Schedule(Protocol):
    """The state of one schedule. Only `take` changes it."""

    def wants_problem(self, priority: int, widths: Collection[int], held_tokens: int) -> bool:
        """Whether a queued problem should be started now.

        `priority` is that of the problem; `widths` has the number of steps that the search of each
        running problem asked for at first; `held_tokens` is the cost of scores that would go before
        the problem and are held back from the verifier's queue.
        """

    def take(self) -> list[Job]:
        """The jobs to send now."""

    def spare(self, *, generating: bool) -> int:
        """Slots of the generator that are left for speculation.

        `generating`: whether the generator has just been given work.
        """


class Decoupled:
    """Both models always in flight, each within its own budget; no turns."""

    def __init__(self, generator: Queue, verifier: Queue, gathering: Gathering | None) -> None:
        """`gathering`: what waits where both engines compute on the same device."""
        self._generator, self._verifier = generator, verifier
        self._gathering = gathering

    def wants_problem(self, priority: int, widths: Collection[int], held_tokens: int) -> bool:
        """Whether the generator has a free slot that no running problem of this priority wants.

        Not while the verifier is so far behind that more problems would only lengthen its queue,
        nor, on a shared device, while those that run have enough work for it.
        """
        generator, verifier = self._generator, self._verifier
        if generator.load >= generator.budget or not generator.is_outranked_by(priority):
            return False
        if verifier.pending_cost + held_tokens >= verifier.budget and (
            held_tokens or not verifier.is_outranked_by(priority)
        ):
            return False
        return not (self._gathering and self._gathering.has_enough(widths))

    def take(self) -> list[Job]:
        """What fits both budgets, but for work that gathers."""
        gathering = self._gathering
        jobs = [] if gathering and gathering.holds_steps() else self._generator.take()
        return jobs if gathering and gathering.holds_scores() else jobs + self._verifier.take()

    def spare(self, *, generating: bool) -> int:
        """Free slots; none while main work gathers."""
        gathering = self._gathering
        return 0 if gathering and gathering.holds_steps() else self._generator.spare


def new_schedule(
    name: ScheduleName, generator: Queue, verifier: Queue, *, one_device: bool, writes: bool
) -> Schedule:
    """The schedule with this name of both models' queues, at the start of a run.

    `one_device`: whether both engines compute on it; `writes`: whether the verifier decodes.
    """
    match name:
        case "lockstep" | "batched":
            return Phased(generator, verifier, batched=name == "batched")
        case "alternating":
            return Alternating(generator, verifier)
        case "decoupled":
            gathering = Gathering(generator, verifier, writes=writes) if one_device else None
            return Decoupled(generator, verifier, gathering)
