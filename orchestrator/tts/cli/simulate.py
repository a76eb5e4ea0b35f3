"""`tts simulate`: schedules, or placements, side by side on GPUs that are not at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from typer import BadParameter

from tts.base.errors import ConfigError
from tts.base.user_paths import is_folder, is_there
from tts.build.resolve import open_deployment
from tts.build.spec import Deployment
from tts.build.tensorrt.gpus import gpus_of
from tts.build.tensorrt.placements import Refused, placed
from tts.lab.bench.simulated_run import (
    PlacedRun,
    PlacementAdvice,
    SimulationOptions,
    advice_of,
    scenario_of,
    simulate_placements,
)
from tts.lab.simulation.scenario import SimulationOutcome
from tts.lab.simulation.scenario import simulate as simulate_schedule
from tts.reports.console import consoles, say
from tts.reports.simulation import outcomes_table, print_placements

from .json_output import print_json
from .options import given_options
from .options.study import Schedules, Simulate
from .runs import given_parameters


@dataclass(frozen=True, kw_only=True)
class SimulateDocument:
    """Schedules side by side, simulated."""

    simulated: bool = True
    """Always: compare the outcomes with one another, their seconds are not measurements."""
    deployment: str
    strategy: str
    n: int
    problems: int
    in_flight: int
    """Problems that run at a time at most."""
    outcomes: list[SimulationOutcome]


@dataclass(frozen=True, kw_only=True)
class PlacementsDocument:
    """Placements of both engines side by side, simulated."""

    simulated: bool = True
    """Always: compare the runs with one another, their seconds are not measurements."""
    deployment: str
    gpus: int
    n: int
    runs: list[PlacedRun]
    refused: list[Refused]
    """Placements that are not possible."""
    advice: list[PlacementAdvice]
    """The placement to take, from concurrency to concurrency."""


def simulate(options: Simulate) -> None:
    """Run `tts simulate`."""
    replay = options.replay
    if options.placements:
        if options.deployment is None:
            raise BadParameter("goes with a deployment", param_hint="--placements")
        given_gpus = options.gpus if "gpus" in given_options(options.context) else None
        spec = open_deployment(options.deployment)
        concurrencies = counts(options.concurrency or "1,8,64")
        print_best_placements(
            spec, concurrencies, given_gpus, options.n or 16, as_json=options.as_json
        )
        return
    if options.concurrency is not None:
        raise BadParameter("goes with --placements", param_hint="--concurrency")
    if options.gpus > 2:
        raise BadParameter("1 or 2, except with --placements", param_hint="--gpus")
    traces: Path | None = None
    if replay is not None and is_there(replay) and not is_folder(replay):
        traces, replay = replay, None
    if options.sharing and options.gpus > 1 and options.deployment is None:
        raise BadParameter("applies to --gpus 1 only", param_hint="--sharing")
    simulated = SimulationOptions(
        options.gpu,
        options.gpus,
        options.sharing or "time-sliced",
        options.strategy,
        given_parameters(options.n, options.parameters),
        options.limit,
        options.in_flight,
        options.seed,
        options.speculation,
        traces,
        replay,
        options.tuned,
        options.deployment,
        options.replicas,
        options.critique_tokens,
    )
    name, scenario = scenario_of(simulated, given_options(options.context))
    outcomes = []
    for schedule in [each.value for each in options.schedules or Schedules]:
        outcomes.append(simulate_schedule(scenario, schedule))
        say(f"{schedule}: {outcomes[-1].wall_s:,.1f} s, simulated in {outcomes[-1].real_s:.1f} s")
    if options.as_json:
        print_json(
            SimulateDocument(
                deployment=scenario.deployment.name,
                strategy=name,
                n=scenario.parameters.n,
                problems=scenario.problems,
                in_flight=scenario.in_flight,
                outcomes=outcomes,
            )
        )
        return
    out, _ = consoles()
    out.print(outcomes_table(scenario, name, outcomes))


MAX_CONCURRENCY = 4096
"""Beyond, a simulation takes hours."""


def counts(text: str) -> list[int]:
    """Numbers of problems, as `1,8,64`."""
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = []
    if not counts or not 1 <= counts[0] <= counts[-1] <= MAX_CONCURRENCY:
        raise BadParameter(
            f"{text!r:.100}: give whole numbers from 1 to {MAX_CONCURRENCY:,}, as 1,8,64",
            param_hint="--concurrency",
        )
    return counts


def print_best_placements(
    deployment: Deployment,
    concurrencies: list[int],
    gpus: int | None,
    n: int,
    *,
    as_json: bool = False,
) -> None:
    """Simulate every placement on so many GPUs that fits, and print which is the fastest."""
    deployment.compiled_pair()
    if deployment.target == "openvino":
        raise ConfigError(
            f"Deployment {deployment.name!r}: target is 'openvino', for which there is nothing to "
            "place: both engines are on this machine's cores, and how fast they are is measured.",
            hint=f"Measure it (tts tune {deployment.argument}), then compare schedules with "
            f"tts simulate {deployment.argument} --tuned RESULT.",
        )
    gpus = gpus or len(gpus_of(deployment))
    candidates, refused = placed(deployment, gpus)
    if not candidates:
        raise ConfigError(
            f"Deployment {deployment.name!r} cannot be placed on {gpus} GPUs. {refused[-1].reason}",
            hint="More GPUs (--gpus), a larger tensorrt.gpu or a smaller precision.",
        )

    def report_placed(run: PlacedRun) -> None:
        say(
            f"{run.concurrency} at a time, {run.placement.text}: {run.problems_per_min:,.0f} "
            "problems per minute, simulated"
        )

    runs = simulate_placements(candidates, concurrencies, n, report_placed)
    if as_json:
        print_json(
            PlacementsDocument(
                deployment=deployment.name,
                gpus=gpus,
                n=n,
                runs=runs,
                refused=list(refused),
                advice=advice_of(runs),
            )
        )
        return
    print_placements(consoles()[0], deployment, gpus, n, runs, refused)
