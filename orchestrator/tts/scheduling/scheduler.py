"""One budget per model; main work before eager work before speculative work.

The scheduler holds the work that the running searches ask for and says what to send next. It
knows neither engines nor a clock: the driver adds jobs, takes what may be sent now, and reports
what has ended. Schedules change only the order in which work is sent, never the trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tts.search import Score

from .load_curve import LoadCurve
from .queue import Job, Kind, Queue
from .schedules import ScheduleName, new_schedule
from .verifier_batching import Grouping, Trigger

SpeculationName = Literal["off", "auto", "always"]

CAUTION = 4
"""What a guess's chance must be of its cost; of 1, 2, 4 and 8 the best in simulation."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be in flight: N_LLM generator requests, N_PRM verifier tokens."""

    schedule: ScheduleName
    generator_requests: int
    verifier_tokens: int
    problems: int | None = None
    """Problems that run at the same time at most; None: as many as the schedule wants."""
    speculation: SpeculationName = "auto"
    """Whether empty slots are filled with work that may not be needed; `auto`: while it pays."""
    group_tokens: int | None = None
    """Verifier work is held until there are so many tokens of it; None: never."""
    group_wait_s: float = 0.01
    """No longer than this."""
    prefetch: bool = False
    """Send a problem's prompts ahead of the siblings that begin with them."""


class Scheduler:
    """Queues and budgets of both models under one policy."""

    def __init__(self, policy: Policy) -> None:
        self._schedule = new_schedule(policy.schedule)
        self._generator = Queue(policy.generator_requests)
        self._verifier = Queue(policy.verifier_tokens)
        self._grouping = (
            Grouping(policy.group_tokens, policy.group_wait_s)
            if policy.group_tokens and policy.schedule == "decoupled"
            else None
        )
        self._speculation = policy.speculation
        self._curve = LoadCurve()
        self._problems = policy.problems
        self._running = 0
        self.triggers: dict[Job, Trigger] = {}
        """What let each job go that was held and has not ended."""

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests in flight: generator, verifier."""
        return self._generator.jobs, self._verifier.jobs

    @property
    def pending(self) -> tuple[int, int]:
        """Jobs that wait to be sent: generator, verifier."""
        held = len(self._grouping) if self._grouping is not None else 0
        return len(self._generator), len(self._verifier) + held

    def add(self, job: Job, now: float) -> None:
        """Take in work that a search asks for at the time `now`, in seconds."""
        if self._grouping is not None and isinstance(job.work, Score):
            self._grouping.add(job, now)
        else:
            self._queue(job).push(job)

    def scoring(self, problem: int, work: Score) -> None:
        """A search has asked for this score; it may be known already and never become a job."""
        if self._grouping is not None:
            self._grouping.complete(problem, work)

    def wants_problem(self) -> bool:
        """Whether a queued problem should be started now, before anything more is taken."""
        if self._problems is not None and self._running >= self._problems:
            return False
        return self._schedule.wants_problem(self._generator, self._verifier, self._running)

    def take(self, now: float) -> list[Job]:
        """The jobs to send now; their budget is charged until `ended`."""
        if self._grouping is not None:
            for job, trigger in self._grouping.release(now):
                self.triggers[job] = trigger
                self._verifier.push(job)
        return self._schedule.take(self._generator, self._verifier)

    def due(self) -> float | None:
        """When `take` must be called at the latest, if nothing happens before."""
        return self._grouping.due() if self._grouping is not None else None

    def ended(self, job: Job) -> None:
        """A job that was taken has been answered, has failed or was cancelled."""
        self._queue(job).ended(job)
        self.triggers.pop(job, None)

    def drop(self, job: Job) -> bool:
        """Forget a pending job; False if it has been taken."""
        if self._grouping is not None:
            held = len(self._grouping)
            self._grouping.drop_job(job)
            if len(self._grouping) < held:
                return True
        return self._queue(job).drop_job(job)

    def spare(self) -> int:
        """Generator slots that speculation may take now, after everything else was taken."""
        if self._speculation == "off":
            return 0
        slots = self._schedule.spare(self._generator, self._verifier)  # asked once after each take
        if slots > 0 and self._speculation == "auto" and (self._verifier or not self.pays(1.0)):
            return 0  # if the verifier is behind, thoughts that come sooner only queue for it
        return slots

    def pays(self, chance: float) -> bool:
        """Whether one more request gains, if with this chance it is of use.

        Where a step of the engine takes t0 + t1 * load, one more request slows `load` others by
        t1 / (t0 + t1 * load) each: together they lose the share of the engine's limit that the
        load has reached. The request brings `chance`, but sooner work seldom means a sooner end,
        hence CAUTION. While the share is not known nothing is sent: the load of main work changes
        enough to learn it, and speculation would hide it.
        """
        if self._speculation == "always":
            return True
        share = self._curve.share(self._generator.jobs + 1)
        return share is not None and CAUTION * share < chance

    @property
    def knee(self) -> int | None:
        """Requests in flight from which on the generator gains little; None: not known yet."""
        return self._curve.knee()

    def learn(self, load: float, tokens: int, seconds: float) -> None:
        """The generator has answered a request with `tokens`; `load`: mean requests in flight."""
        self._curve.add(load, tokens, seconds)

    def speculate(self, job: Job) -> None:
        """A speculative job is being sent."""
        self._generator.started(job)

    def overdrawn(self) -> int:
        """Speculative requests whose slots main and eager work has taken: to be cancelled."""
        queue = self._generator
        return max(0, min(queue.speculative, queue.used + queue.speculative - queue.budget))

    def promote(self, job: Job) -> None:
        """A search has asked for what a speculative job is already doing."""
        self._generator.ended(job)
        job.kind = Kind.MAIN
        self._generator.started(job)

    def problem_started(self) -> None:
        """A queued problem has become a running one."""
        self._running += 1

    def problem_done(self, problem: int) -> None:
        """A running problem has its result; what it still had pending is dropped."""
        self._running -= 1
        self._generator.drop(problem)
        self._verifier.drop(problem)
        if self._grouping is not None:
            self._grouping.drop(problem)

    def _queue(self, job: Job) -> Queue:
        return self._generator if job.generates else self._verifier
