"""The schedules by name; those under which the models never work at once."""

from __future__ import annotations

from collections.abc import Collection

from .gathering import Gathering
from .queue import Job, Queue
from .schedules import Decoupled, Policy, Schedule


class Phased(Schedule):
    """Generate all, score all, decide, and again: both models never work at once.

    `lockstep` has one problem at a time. `batched` has many: before a phase begins, it starts
    problems until the batch fills the budget of the phase's model.
    """

    def __init__(
        self, generator: Queue, verifier: Queue, widths: Collection[int], *, batched: bool
    ) -> None:
        super().__init__(generator, verifier)
        self._widths, self._batched = widths, batched
        self._scoring = False

    def wants_problem(self, priority: int, held_tokens: int) -> bool:
        """Whether a queued problem should be started now; see Schedule."""
        if not self._batched:
            return not self._widths
        generator, verifier = self.generator, self.verifier
        if generator.jobs or verifier.jobs or (self._scoring and verifier.pending > 0):
            return False  # in the middle of a phase
        batch = verifier if not generator.pending else generator
        return batch.pending_cost < batch.budget

    def take(self) -> list[Job]:
        """The jobs of the phase that fit; the next phase begins when nothing is left of one."""
        queue = self.verifier if self._scoring else self.generator
        if not (queue.pending or queue.jobs):
            self._scoring = not self._scoring
        return (self.verifier if self._scoring else self.generator).take()


class Alternating(Schedule):
    """The models take turns; a turn is one batch, as large as the model's budget.

    The generator's batch is filled with work of running problems first, then with queued problems,
    then with speculation. A model without work passes its turn.
    """

    def __init__(self, generator: Queue, verifier: Queue) -> None:
        super().__init__(generator, verifier)
        self._scored_last = True

    def wants_problem(self, priority: int, held_tokens: int) -> bool:
        """Whether a queued problem should be started now; see Schedule."""
        generator, verifier = self.generator, self.verifier
        if generator.jobs or verifier.jobs:
            return False
        return (
            (self._scored_last or not verifier.pending)  # it is the generator's turn
            and generator.pending_cost < generator.budget
            and verifier.pending_cost < verifier.budget  # else its queue would only grow
        )

    def take(self) -> list[Job]:
        """One batch of the model whose turn it is, once nothing is in flight."""
        generator, verifier = self.generator, self.verifier
        if generator.jobs or verifier.jobs or (not generator.pending and not verifier.pending):
            return []
        self._scored_last = not generator.pending or (
            not self._scored_last and verifier.pending > 0
        )
        return (verifier if self._scored_last else generator).take()

    def spare(self, *, generating: bool) -> int:
        """Slots that a batch leaves which goes now; none once it is on its way."""
        return self.generator.budget - self.generator.load if generating else 0


class OneCore(Schedule):
    """The schedule `decoupled` on one core: turns like `batched`, where fuller steps are cheaper.

    That is until the verifier has shown that a score adds more than the fixed cost of a step.
    """

    def __init__(self, generator: Queue, verifier: Queue, widths: Collection[int]) -> None:
        super().__init__(generator, verifier)
        self._turns = Phased(generator, verifier, widths, batched=True)
        self._no_turns = Decoupled(generator, verifier)

    def wants_problem(self, priority: int, held_tokens: int) -> bool:
        """Whether a queued problem should be started now; see Schedule."""
        return self._now.wants_problem(priority, held_tokens)

    def take(self) -> list[Job]:
        """The jobs to send now."""
        return self._now.take()

    def spare(self, *, generating: bool) -> int:
        """Slots of the generator that are left for speculation."""
        return self._now.spare(generating=generating)

    @property
    def _now(self) -> Schedule:
        share = self.verifier.curve.share(1)
        return self._turns if share is None or share < 1 / 2 else self._no_turns


def new_schedule(
    policy: Policy, generator: Queue, verifier: Queue, widths: Collection[int]
) -> Schedule:
    """The schedule of both models' queues under a policy, at the start of a run.

    `widths` always has the number of steps that the search of each running problem asked for at
    first.
    """
    match policy.schedule:
        case "lockstep" | "batched" as name:
            return Phased(generator, verifier, widths, batched=name == "batched")
        case "alternating":
            return Alternating(generator, verifier)
        case "decoupled" if policy.one_core:
            return OneCore(generator, verifier, widths)
        case "decoupled" if policy.one_device:
            return Gathering(generator, verifier, widths, writes=policy.verifier_writes)
        case "decoupled":
            return Decoupled(generator, verifier)
