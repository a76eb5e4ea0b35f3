"""`tts simulate`: schedules side by side on GPUs that are not at hand."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tts.strategies.names import STRATEGY_NAMES

from .completion import deployments, runs, strategies
from .json_output import print_json
from .options import JsonOption, given_options, usable
from .placements import counts, print_best_placements
from .runs import ParametersOption, Schedule, Speculation, SpeculationOption, given_parameters


class _Gpu(StrEnum):
    a100_80g = "a100-80g"
    h100 = "h100"
    h200 = "h200"


class _Sharing(StrEnum):
    time_sliced = "time-sliced"
    overlapped = "overlapped"


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
    gpu: Annotated[_Gpu, typer.Option("--gpu", help="The kind of GPU.")] = _Gpu.h100,
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
        _Sharing | None,
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
        list[Schedule] | None,
        typer.Option("--schedule", help="May be given several times.", show_default="all"),
    ] = None,
    speculation: SpeculationOption = Speculation.auto,
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
    call_ms: Annotated[
        float | None,
        typer.Option(
            "--call-ms",
            min=0,
            hidden=True,
            help="The orchestrator's own time for a call.",
            show_default="0.5; with --tuned 0, for what was measured includes it",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the run.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Predict how schedules compare, for a deployment or for a usual pair; needs no GPU.

    The real search and scheduler run on simulated engines and virtual time
    (docs/explanation/simulation.md).
    """
    from tts.build.resolve import open_deployment
    from tts.build.user_paths import is_folder, is_there
    from tts.lab.bench.simulated_run import SimulationOptions, scenario_of
    from tts.lab.simulation.scenario import simulate as simulate_schedule
    from tts.reports.console import consoles, say
    from tts.reports.simulation import outcomes_table

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
    traces = None  # a file of traces, or a folder of a run
    if replay is not None and is_there(replay) and not is_folder(replay):
        traces, replay = replay, None
    if sharing and gpus > 1 and deployment is None:
        raise typer.BadParameter("applies to --gpus 1 only", param_hint="--sharing")
    wanted = SimulationOptions(
        gpu.value,
        gpus,
        (sharing or _Sharing.time_sliced).value,
        strategy,
        given_parameters(n, parameters),
        limit,
        in_flight,
        seed,
        speculation.value,
        call_ms,
        traces,
        replay,
        tuned,
        deployment,
        replicas,
    )
    name, scenario = scenario_of(wanted, given_options(context))
    outcomes = []
    for schedule in schedules or Schedule:
        outcomes.append(simulate_schedule(scenario, schedule.value))
        say(f"{schedule.value}: {outcomes[-1].wall_s:,.1f} s in {outcomes[-1].real_s:.1f} s")
    if as_json:
        from .documents.deployments import SimulateDocument

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
