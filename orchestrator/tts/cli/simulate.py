"""`tts simulate`: schedules, or placements, side by side on GPUs that are not at hand."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from tts.base.choices import Sharing
from tts.base.errors import ConfigError
from tts.base.user_paths import is_folder, is_there
from tts.build.resolve import open_deployment
from tts.build.spec import Deployment
from tts.build.tensorrt.gpus import gpus_of
from tts.build.tensorrt.placements import placed
from tts.lab.bench.simulated_run import (
    PlacedRun,
    SimulationOptions,
    advice_of,
    scenario_of,
    simulate_placements,
)
from tts.lab.simulation.scenario import simulate as simulate_schedule
from tts.reports.console import consoles, say
from tts.reports.simulation import outcomes_table, print_placements
from tts.scheduling import ScheduleName
from tts.strategies.names import STRATEGY_NAMES

from .completion import deployments, runs, strategies
from .documents.deployments import PlacementsDocument, SimulateDocument
from .json_output import print_json
from .options import JsonOption, given_options, usable
from .runs import ParametersOption, SpeculationOption, given_parameters

_NAMES: tuple[ScheduleName, ...] = get_args(ScheduleName)
_Schedule: Any = Enum("_Schedule", [(name, name) for name in _NAMES])  # type: ignore[misc]
"""The schedules as an enum: of choices, typer takes lists of these alone."""
Gpu = Literal["a100-80g", "h100", "h200"]


def simulate(
    context: typer.Context,
    deployment: Annotated[
        str | None,
        typer.Argument(
            metavar="DEPLOYMENT",
            autocompletion=deployments,
            help="A deployment file or a bundled name.",
            show_default="Llama-3.2-1B with an 8B verifier",
        ),
    ] = None,
    gpu: Annotated[Gpu, typer.Option("--gpu", help="The kind of GPU.")] = "h100",
    gpus: Annotated[
        int,
        typer.Option(
            "--gpus",
            min=1,
            max=64,
            help="2: one for each engine; 1: shared. With --placements: how many there are.",
            show_default="2; with --placements as many as the deployment uses",
        ),
    ] = 2,
    placements: Annotated[
        bool,
        typer.Option(
            "--placements",
            help="Compare every way to place both engines of the deployment on --gpus.",
        ),
    ] = False,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            metavar="N,...",
            help="With --placements: how many problems at a time.",
            show_default="1,8,64",
        ),
    ] = None,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas", min=1, max=64, help="Servers, each with GPUs of its own, and a router."
        ),
    ] = 1,
    sharing: Annotated[
        Sharing | None,
        typer.Option(
            "--sharing",
            help="How engines share one GPU: the worst and the best case.",
            show_default="time-sliced",
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option("--strategy", autocompletion=strategies, help=f"{', '.join(STRATEGY_NAMES)}."),
    ] = "beam-search",
    n: Annotated[
        int | None,
        typer.Option("--n", help="Completions per problem.", show_default="16; greedy: 1"),
    ] = None,
    parameters: ParametersOption = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100_000, help="Problems to solve.")
    ] = 64,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, help="Problems that run at a time at most.")
    ] = 8,
    schedules: Annotated[
        list[_Schedule] | None,
        typer.Option("--schedule", help="May be given several times.", show_default="all"),
    ] = None,
    speculation: SpeculationOption = "auto",
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay",
            callback=usable,
            autocompletion=runs,
            metavar="RUN|FILE",
            help="A recorded run, which says what is solved, how, and what the engines answer; or "
            "a file of recorded chains, whose step lengths and scores are imitated.",
            show_default="lengths and scores of a 1B model on MATH",
        ),
    ] = None,
    tuned: Annotated[
        Path | None,
        typer.Option(
            "--tuned",
            callback=usable,
            metavar="FILE",
            help="A result of tts tune, to which both engines' step times are fitted.",
            show_default="a roofline of the GPU",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the run.")] = 0,
    critique_tokens: Annotated[
        int | None,
        typer.Option(
            "--critique-tokens",
            min=8,
            max=8192,
            help="The verifier writes critiques of this mean length.",
            show_default="it writes none; with format critique a quarter of max_tokens",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict how schedules compare, for a deployment or for a usual pair; needs no GPU.

    The real search and scheduler run on simulated engines and virtual time
    (docs/explanation/simulation.md).
    """
    if placements:
        if deployment is None:
            raise typer.BadParameter("goes with a deployment", param_hint="--placements")
        given_gpus = gpus if "gpus" in given_options(context) else None
        spec = open_deployment(deployment)
        concurrencies = counts(concurrency or "1,8,64")
        print_best_placements(spec, concurrencies, given_gpus, n or 16, as_json=as_json)
        return
    if concurrency is not None:
        raise typer.BadParameter("goes with --placements", param_hint="--concurrency")
    if gpus > 2:
        raise typer.BadParameter("1 or 2, except with --placements", param_hint="--gpus")
    traces: Path | None = None
    if replay is not None and is_there(replay) and not is_folder(replay):
        traces, replay = replay, None
    if sharing and gpus > 1 and deployment is None:
        raise typer.BadParameter("applies to --gpus 1 only", param_hint="--sharing")
    options = SimulationOptions(
        gpu,
        gpus,
        sharing or "time-sliced",
        strategy,
        given_parameters(n, parameters),
        limit,
        in_flight,
        seed,
        speculation,
        traces,
        replay,
        tuned,
        deployment,
        replicas,
        critique_tokens,
    )
    name, scenario = scenario_of(options, given_options(context))
    outcomes = []
    for schedule in [each.value for each in schedules or _Schedule]:
        outcomes.append(simulate_schedule(scenario, schedule))
        say(f"{schedule}: {outcomes[-1].wall_s:,.1f} s, simulated in {outcomes[-1].real_s:.1f} s")
    if as_json:
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
        raise typer.BadParameter(
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
