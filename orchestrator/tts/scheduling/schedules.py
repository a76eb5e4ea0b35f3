"""The schedules: when each model may be sent work, and when a queued problem may start.

They differ only in the order of work. Each sees the same two queues, in which main work comes
before eager work, and eager before speculative work.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal, Protocol

from .queue import Job, Queue

ScheduleName = Literal["lockstep", "batched", "alternating", "decoupled"]

ENOUGH = 1.5
"""On a shared device, the steps that running problems have at once over the generator's budget:
some of them always wait for a straggler, while more would thrash the KV caches. In simulation 1.25
to 2 differ by at most 7%; neither end is better throughout (docs/decisions.md)."""

MANY = 64
"""With so many steps to generate or to score, critiques end often enough for work to come one after
the other. Of fewer problems it comes in bursts, and what waits for the next one waits for long: in
simulation four problems took up to 5% longer with gathering, and 16 took 9 to 11% less time."""

EULER_GAMMA = 0.5772


class Schedule(Protocol):
    """The state of one schedule. Only `take` changes it."""

    def wants_problem(
        self, generator: Queue, verifier: Queue, *, widths: Collection[int], priority: int
    ) -> bool:
        """Whether a queued problem should be started now.

        `widths` has the number of steps that the search of each running problem asked for at first;
        `priority` is that of the problem that would start.
        """

    def take(self, generator: Queue, verifier: Queue) -> list[Job]:
        """The jobs to send now."""

    def spare(self, generator: Queue, verifier: Queue, *, taken: bool) -> int:
        """Slots of the generator that are left for speculation.

        `taken`: whether the generator has just been given work.
        """


class Phased:
    """Generate all, score all, decide, and again: both models never work at once.

    `lockstep` has one problem at a time. `batched` has many: before a phase begins, it starts
    problems until the batch fills the budget of the phase's model.
    """

    def __init__(self, *, batched: bool) -> None:
        self._batched = batched
        self._scoring = False

    def wants_problem(
        self, generator: Queue, verifier: Queue, *, widths: Collection[int], priority: int
    ) -> bool:
        """See Schedule."""
        if not self._batched:
            return not widths
        if generator.jobs or verifier.jobs or (self._scoring and not verifier.empty):
            return False  # in the middle of a phase
        batch = verifier if generator.empty else generator
        return batch.pending_cost < batch.budget

    def take(self, generator: Queue, verifier: Queue) -> list[Job]:
        """See Schedule."""
        if not (verifier if self._scoring else generator).busy:
            self._scoring = not self._scoring
        return (verifier if self._scoring else generator).take()

    def spare(self, generator: Queue, verifier: Queue, *, taken: bool) -> int:
        """See Schedule: none, a phase has nothing but what all its problems need."""
        return 0


class Alternating:
    """The models take turns; a turn is one batch, as large as the model's budget.

    The generator's batch is filled with work of running problems first, then with queued problems,
    then with speculation. A model without work passes its turn.
    """

    def __init__(self) -> None:
        self._scored_last = True

    def wants_problem(
        self, generator: Queue, verifier: Queue, *, widths: Collection[int], priority: int
    ) -> bool:
        """See Schedule."""
        if generator.jobs or verifier.jobs:
            return False
        generators_turn = self._scored_last or verifier.empty
        return (
            generators_turn
            and generator.pending_cost < generator.budget
            and verifier.pending_cost < verifier.budget  # else its queue would only grow
        )

    def take(self, generator: Queue, verifier: Queue) -> list[Job]:
        """See Schedule."""
        if generator.jobs or verifier.jobs or (generator.empty and verifier.empty):
            return []
        self._scored_last = generator.empty or (not self._scored_last and not verifier.empty)
        return (verifier if self._scored_last else generator).take()

    def spare(self, generator: Queue, verifier: Queue, *, taken: bool) -> int:
        """See Schedule: what the batch leaves that goes now; none once it is on its way."""
        return generator.budget - generator.used if taken else 0


class Decoupled:
    """Both models always in flight, each within its own budget; no turns.

    Where the engines share a device, a step of one that is nearly empty takes as much from the
    other as a full one. Then the generator's work is gathered while the verifier is busy, an idle
    verifier waits for more scores as long as they arrive faster than a step takes, and problems are
    started to fill a step rather than a single free slot.

    A verifier that writes is busy almost always, and takes scores in at any step: then the
    generator's work gathers only as long as that costs less than steps for it alone.
    """

    def __init__(self, *, shared: bool, writes: bool = False) -> None:
        """`shared`: whether both engines compute on the same device; `writes`: the verifier."""
        self._shared = shared
        self._writes = writes

    def wants_problem(
        self, generator: Queue, verifier: Queue, *, widths: Collection[int], priority: int
    ) -> bool:
        """See Schedule.

        When the generator has a free slot that no running problem of this priority wants, unless
        the verifier is so far behind that more problems would only lengthen its queue, or, on a
        shared device, those that run can fill the generator's budget whenever it is their turn.
        """
        return (
            generator.used < generator.budget
            and generator.outranked_by(priority)
            and (verifier.backlog < verifier.budget or verifier.outranked_by(priority))
            and not (self._shared and not self._writes and sum(widths) >= ENOUGH * generator.budget)
        )

    def take(self, generator: Queue, verifier: Queue) -> list[Job]:
        """See Schedule."""
        jobs = [] if self._gathers(generator, verifier) else generator.take()
        return jobs if self._gathers_scores(generator, verifier) else jobs + verifier.take()

    def spare(self, generator: Queue, verifier: Queue, *, taken: bool) -> int:
        """See Schedule: none while main work gathers."""
        return 0 if self._gathers(generator, verifier) else generator.spare

    def _gathers(self, generator: Queue, verifier: Queue) -> bool:
        """Whether the generator's work waits for more of it.

        Only while the verifier computes, so something will end: then this is asked again.
        """
        if not self._shared or generator.empty or not verifier.jobs:
            return False
        if self._writes:
            return self._gathers_beside_critiques(generator, verifier)
        batch = generator.pending + verifier.jobs + verifier.pending
        return gathering_pays(generator.used, batch)

    def _gathers_beside_critiques(self, generator: Queue, verifier: Queue) -> bool:
        """Whether the generator's work waits for more of it while critiques are written.

        Each critique that ends may bring a step to generate. A request that waits is missing from
        the verifier's batch, whose steps go on: waiting costs its share of the time. Sent now, it
        takes steps of its own beside `used` others (`gathering_pays`).
        """
        if generator.pending + generator.used + verifier.jobs < MANY:
            return False
        run_s, request_s = generator.curve.seconds(0), verifier.curve.seconds(verifier.jobs)
        if run_s is None or request_s is None:
            return False
        lost_s = request_s / verifier.jobs / (generator.pending + verifier.jobs)
        return waiting_pays(generator.pending, lost_s, run_s / (generator.used + 1))

    def _gathers_scores(self, generator: Queue, verifier: Queue) -> bool:
        """Whether the verifier's next step waits for one more score.

        Only while the generator has main work in flight, so no score waits that everything waits
        for; and not beside scores in flight, as the engine coalesces them by itself. Until both
        models have shown how long they take nothing waits.
        """
        if not self._shared or self._writes or verifier.empty or verifier.jobs:
            return False
        # by Little's law, of k requests that take s seconds each one ends every s / k seconds
        step_s, request_s = verifier.curve.seconds(0), generator.curve.seconds(generator.jobs)
        if step_s is None or request_s is None or not generator.used:
            return False
        return waiting_pays(verifier.pending, request_s / generator.used, step_s)


def gathering_pays(running: int, batch: int) -> bool:
    """Whether a request costs a shared device less in such a batch than beside `running`.

    If a step costs the same for few requests as for many, a request adds only the steps that run
    for it alone. With lengths without memory of mean l, one request beside k others makes them last
    l / (k + 1) steps longer on average. A batch of m lasts l H(m) steps, with the m-th harmonic
    number H(m), about ln m + 0.577; a request's share of that is l H(m) / m.
    """
    return (running + 1) * (math.log(batch) + EULER_GAMMA) < batch


def waiting_pays(jobs: int, gap_s: float, step_s: float) -> bool:
    """Whether a step should wait for more jobs: while waiting costs less than a step.

    This is the rule for delayed TCP acknowledgements (Dooly, Goldman and Scott 1998): send once the
    total waiting time equals the cost of sending. The sum of both is at most twice the optimum.
    Where jobs come every `gap_s` seconds, the last of m has waited for one gap when the next one
    comes, and the first for m. `step_s` is the fixed cost of a step.
    """
    return jobs * (jobs + 1) / 2 * gap_s < step_s


def new_schedule(name: ScheduleName, *, shared: bool = False, writes: bool = False) -> Schedule:
    """The schedule with this name at the start of a run; the rest is for Decoupled."""
    match name:
        case "lockstep" | "batched":
            return Phased(batched=name == "batched")
        case "alternating":
            return Alternating()
        case "decoupled":
            return Decoupled(shared=shared, writes=writes)
