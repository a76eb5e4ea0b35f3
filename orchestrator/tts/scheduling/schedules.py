"""Policies and schedules: when each model may be sent work, and a queued problem may start.

Schedules differ only in the order of work. Each sees the same two queues, in which main work comes
before eager work, and eager before speculative work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tts.base.choices import ScheduleName, SpeculationName

from .queue import Job, Queue


@dataclass(frozen=True, slots=True)
class Policy:
    """The schedule, and the limits in flight: a budget for each model."""

    schedule: ScheduleName
    generator_requests: int
    verifier_limit: int
    """The verifier's budget in tokens of prompts; where it writes critiques, in critiques."""
    problems: int | None = None
    """Most problems that run at the same time; None: as many as the schedule wants."""
    speculation: SpeculationName = "auto"
    """Whether empty slots are filled with work that may not be needed; `auto`: while it pays."""
    prefetch: bool = False
    """Send a problem's prompts ahead of the siblings that begin with them."""
    one_device: bool = False
    """Both engines compute on the same device, and take its time from each other."""
    one_core: bool = False
    """There is one core for both engines, so that nothing is won by having them work at once."""
    verifier_writes: bool = False
    """Whether the verifier decodes, as the generator does: then scores join it at any time."""
    verifier_step_tokens: int | None = None
    """Most tokens that the verifier computes in a step; None: not known."""


class Schedule(ABC):
    """The state of one schedule. Only `take` changes it."""

    def __init__(self, generator: Queue, verifier: Queue) -> None:
        self.generator, self.verifier = generator, verifier

    @abstractmethod
    def wants_problem(self, priority: int, held_tokens: int) -> bool:
        """Whether a queued problem should be started now.

        `priority` is that of the problem; `held_tokens` is the cost of scores that would go before
        the problem and are held back from the verifier's queue.
        """

    @abstractmethod
    def take(self) -> list[Job]:
        """The jobs to send now."""

    def spare(self, *, generating: bool) -> int:
        """Slots of the generator that are left for speculation, by default none.

        `generating`: whether the generator has just been given work.
        """
        return 0


class Decoupled(Schedule):
    """Both models always in flight, each within its own budget; no turns."""

    def wants_problem(self, priority: int, held_tokens: int) -> bool:
        """Whether the generator has a free slot that no running problem of this priority wants.

        Not while the verifier is so far behind that more problems would only lengthen its queue.
        """
        generator, verifier = self.generator, self.verifier
        if generator.load >= generator.budget or not generator.is_outranked_by(priority):
            return False
        is_behind = verifier.pending_cost + held_tokens >= verifier.budget
        return not is_behind or (not held_tokens and verifier.is_outranked_by(priority))

    def take(self) -> list[Job]:
        """What fits both budgets."""
        return self.generator.take() + self.verifier.take()

    def spare(self, *, generating: bool) -> int:
        """Free slots."""
        return self.generator.spare
