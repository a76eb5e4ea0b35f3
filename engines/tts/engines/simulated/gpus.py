"""Engines on GPUs: whose steps run when, and how fast.

Alone, a step runs at its own speed. Two engines on one GPU are between two bounds:

- `time-sliced`: one computes at a time; n engines at work run at 1/n of their speed each.
- `overlapped`: they slow each other down only where together they need more than the GPU's
  achievable FLOP/s or memory bandwidth.

The ranks of an engine on several GPUs wait for each other, so it is as fast as on the slowest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil

from tts.base.choices import Sharing

from .batching import Burst, SimulatedEngine, SimulatedRequest

_ROUNDING_S = 1e-9


@dataclass(slots=True)
class _Running:
    engine: SimulatedEngine
    devices: frozenset[int]
    speed: float = 1.0
    burst: Burst | None = None
    done_s: float = 0.0
    """How much of the burst is done, in time that it would take alone."""

    @property
    def left_s(self) -> float:
        assert self.burst is not None
        return self.burst.steps * self.burst.cost.duration_s - self.done_s

    def shorten(self) -> None:
        """End the burst with the step that is running."""
        assert self.burst is not None
        step_s = self.burst.cost.duration_s
        started_steps = ceil((self.done_s - _ROUNDING_S) / step_s)
        self.burst.steps = min(self.burst.steps, max(1, started_steps))


class Gpus:
    """GPUs and the engines on them. Times are given by the caller and never go back."""

    def __init__(
        self,
        engines: Sequence[SimulatedEngine],
        sharing: Sharing = "time-sliced",
        devices: Sequence[Collection[int]] | None = None,
    ) -> None:
        """`devices`: of each engine the GPUs that its ranks are on; None: all on one."""
        places = [(0,)] * len(engines) if devices is None else devices
        self._running = [
            _Running(engine, frozenset(place))
            for engine, place in zip(engines, places, strict=True)
        ]
        self._sharing = sharing
        self._now = 0.0

    def next_s(self) -> float | None:
        """When the next burst ends; None while all engines are idle."""
        seconds = [running.left_s / running.speed for running in self._running if running.burst]
        return self._now + min(seconds) if seconds else None

    def run(self, now: float) -> list[SimulatedRequest]:
        """Move on to `now`, which is not beyond `next_s`; the requests that are complete.

        To be called also when requests were submitted or cancelled: their engine then plans again
        after the running step.
        """
        complete: list[SimulatedRequest] = []
        for running in self._running:
            if running.burst:
                running.done_s += (now - self._now) * running.speed
                running.engine.totals.busy_s += now - self._now
        self._now = now
        for running in self._running:
            if running.burst and running.engine.disturbed:
                running.shorten()
            if running.burst and running.left_s <= _ROUNDING_S:
                complete += running.engine.finish(running.burst)
                running.burst = None
            if not running.burst and (burst := running.engine.plan()):
                running.burst, running.done_s = burst, 0.0
        busy = [running for running in self._running if running.burst]
        for running in busy:
            running.speed = min(self._speed(device, busy) for device in running.devices)
        return complete

    def _speed(self, device: int, busy: Sequence[_Running]) -> float:
        costs = [r.burst.cost for r in busy if r.burst and device in r.devices]
        if len(costs) < 2:
            return 1.0
        if self._sharing == "time-sliced":
            return 1.0 / len(costs)
        compute = sum(cost.compute_s / cost.duration_s for cost in costs)
        memory = sum(cost.memory_s / cost.duration_s for cost in costs)
        return 1.0 / max(1.0, compute, memory)
