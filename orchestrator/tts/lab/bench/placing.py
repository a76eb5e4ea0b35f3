"""Which placement of a deployment is the fastest at which concurrency: by simulation alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tts.build.tensorrt.placements import Placed, Placement
from tts.runs.statistics import quantile
from tts.strategies.catalog import find_strategy

from ..simulation.fleet import ServerGroup
from ..simulation.pairs import as_simulated
from ..simulation.scenario import Scenario, simulate
from ..simulation.workload import typical
from .simulating import CALL_MS

FEWEST_PROBLEMS = 8
"""Of a simulated run, so that one long problem does not decide."""
ENOUGH_PROBLEMS = 64
"""Up to here a run has twice as many problems as run at a time: the end counts for less."""
NEAR = 0.02
"""Placements within this share of the best count as equally fast."""


@dataclass(frozen=True)
class PlacedRun:
    """One placement at one concurrency. Every number is simulated."""

    placement: Placement
    concurrency: int
    problems_per_min: float
    median_s: float
    """From the start of a problem to its result."""
    calls: float
    """Share of the time for which the orchestrator's process is busy with calls."""


@dataclass(frozen=True)
class Advice:
    """The placement to take for these concurrencies, neighbours among those that were simulated."""

    placement: Placement
    concurrencies: tuple[int, ...]


def scenario_of(placed: Placed, concurrency: int, n: int) -> Scenario:
    """Beam search with `concurrency` problems at a time, on all servers of the placement."""
    deployment = as_simulated(placed.deployment)
    parameters = find_strategy("beam-search").configure(
        {"n": n}, context=deployment.generator.max_seq_len
    )
    return Scenario(
        deployment,
        "time-sliced",
        typical(),
        parameters,
        problems=max(FEWEST_PROBLEMS, concurrency, min(2 * concurrency, ENOUGH_PROBLEMS)),
        in_flight=concurrency,
        call_s=CALL_MS / 1e3,
        whole_head=True,
        groups=(ServerGroup(deployment, placed.placement.servers),),
    )


def simulate_placed(placed: Placed, concurrency: int, n: int) -> PlacedRun:
    """Simulate one placement under `decoupled`."""
    scenario = scenario_of(placed, concurrency, n)
    outcome = simulate(scenario, "decoupled")
    return PlacedRun(
        placed.placement,
        concurrency,
        60 * scenario.problems / outcome.wall_s,
        quantile(outcome.latencies_s, 0.5) or 0.0,
        outcome.calls_s / outcome.wall_s,
    )


def simulate_placements(
    candidates: Sequence[Placed],
    concurrencies: Sequence[int],
    n: int,
    say: Callable[[PlacedRun], None] = lambda run: None,
) -> list[PlacedRun]:
    """All candidates at all concurrencies; `say` is told of each as it is done."""
    runs: list[PlacedRun] = []
    for concurrency in concurrencies:
        for placed in candidates:
            runs.append(simulate_placed(placed, concurrency, n))
            say(runs[-1])
    return runs


def advice_of(runs: Sequence[PlacedRun]) -> list[Advice]:
    """The fastest placement from concurrency to concurrency.

    One stays the advice while it is within `NEAR` of the best: a change must be worth it.
    """
    found: list[Advice] = []
    for concurrency in sorted({run.concurrency for run in runs}):
        speed = {
            run.placement: run.problems_per_min for run in runs if run.concurrency == concurrency
        }
        best = max(speed, key=lambda placement: speed[placement])
        last = found[-1] if found else None
        if last and speed.get(last.placement, 0.0) >= (1 - NEAR) * speed[best]:
            found[-1] = Advice(last.placement, (*last.concurrencies, concurrency))
        else:
            found.append(Advice(best, (concurrency,)))
    return found
