"""Work that waits for more of it, where both engines compute on the same device.

There a step of one engine that is nearly empty takes as much from the other as a full one. So the
generator's work is gathered while the verifier is busy, an idle verifier waits for more scores as
long as they arrive faster than a step takes, and problems are started to fill a step rather than a
single free slot.

A verifier that writes is busy almost always, and takes scores in at any step: then the generator's
work gathers only as long as that costs less than steps for it alone, unless chains are whole, so
that no step waits for a critique. While such a verifier is idle, critiques wait for all but the
last of what is generated: they take its time, and are done the sooner the more begin together.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from .queue import Job, Queue
from .schedules import Decoupled

STEPS_PER_BUDGET = 1.5
"""The steps that running problems have at once over the generator's budget, with which no further
problem starts: some of them always wait for a straggler, while more would thrash the KV caches. In
simulation 1.25 to 2 differ by at most 7%; neither end is better throughout."""

CRITIQUES_PER_REQUEST = 32
"""The critiques for each request that is generated with which an idle verifier waits no longer. In
a stream of problems something always is: simulated chains whose critiques waited for all took four
times as long. With 8 or 16 some small runs took 1.03 times as long as under `batched`."""

EULER_GAMMA = 0.5772


class Gathering(Decoupled):
    """The schedule `decoupled` on a shared device."""

    def __init__(
        self, generator: Queue, verifier: Queue, widths: Collection[int], *, writes: bool
    ) -> None:
        """See new_schedule."""
        super().__init__(generator, verifier)
        self._widths, self._writes = widths, writes

    def wants_problem(self, priority: int, held_tokens: int) -> bool:
        """Not while those that run can fill the generator's budget when it is their turn."""
        enough = not self._writes and sum(self._widths) >= STEPS_PER_BUDGET * self.generator.budget
        return not enough and super().wants_problem(priority, held_tokens)

    def take(self) -> list[Job]:
        """What fits both budgets, but for work that gathers."""
        jobs = [] if self.holds_steps() else self.generator.take()
        return jobs if self.holds_scores() else jobs + self.verifier.take()

    def spare(self, *, generating: bool) -> int:
        """Free slots; none while main work gathers."""
        return 0 if self.holds_steps() else self.generator.spare

    def holds_steps(self) -> bool:
        """Whether the generator's work waits for more of it.

        Only while the verifier computes, so something will end: then this is asked again.
        """
        generator, verifier = self.generator, self.verifier
        if not generator.pending or not verifier.jobs:
            return False
        if self._writes and any(self._widths):
            return self._holds_steps_beside_critiques()
        batch = generator.pending + verifier.jobs + verifier.pending
        return gathering_pays(generator.load, batch)

    def _holds_steps_beside_critiques(self) -> bool:
        """Whether the generator's work waits for more of it while critiques are written.

        Each critique that ends may bring a step to generate. A request that waits is missing from
        the verifier's batch, whose steps go on: waiting costs its share of the time. Sent now, it
        takes steps of its own beside `load` others (`gathering_pays`).
        """
        generator, verifier = self.generator, self.verifier
        run_s, request_s = generator.curve.seconds(0), verifier.curve.seconds(verifier.jobs)
        if run_s is None or request_s is None:
            return False
        lost_s = request_s / verifier.jobs / (generator.pending + verifier.jobs)
        return waiting_pays(generator.pending, lost_s, run_s / (generator.load + 1))

    def holds_scores(self) -> bool:
        """Whether the verifier's work waits for more scores.

        Only while the generator has main work in flight, so no score waits that everything waits
        for; and not beside others in flight, which the engine coalesces by itself. Critiques wait
        for most of it; scores that are read for one more, once both models have shown how long they
        take.
        """
        generator, verifier = self.generator, self.verifier
        if not verifier.pending or not generator.load or verifier.jobs:
            return False
        if self._writes:
            return verifier.pending < CRITIQUES_PER_REQUEST * generator.load
        # by Little's law, of k requests that take s seconds each one ends every s / k seconds
        step_s, request_s = verifier.curve.seconds(0), generator.curve.seconds(generator.jobs)
        if step_s is None or request_s is None:
            return False
        return waiting_pays(verifier.pending, request_s / generator.load, step_s)


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
