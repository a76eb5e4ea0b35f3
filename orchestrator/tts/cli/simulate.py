"""`tts simulate`: schedules side by side on GPUs that are not at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.compat import StrEnum
from tts.strategies.names import STRATEGY_NAMES

from .options import given_options, usable
from .runs import Schedule, Speculation, SpeculationOption


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
            help="A deployment file or a bundled name.",
            show_default="Llama-3.2-1B with an 8B verifier",
        ),
    ] = None,
    gpu: Annotated[_Gpu, typer.Option("--gpu", help="The kind of GPU.")] = _Gpu.h100,
    gpus: Annotated[
        int, typer.Option("--gpus", min=1, max=2, help="2: one for each engine; 1: shared.")
    ] = 2,
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
        str, typer.Option("--strategy", help=f"{', '.join(STRATEGY_NAMES)}.")
    ] = "beam-search",
    n: Annotated[
        int | None,
        typer.Option("--n", help="Completions per problem.", show_default="16; greedy: 1"),
    ] = None,
    beam_width: Annotated[
        int | None,
        typer.Option("--beam-width", help="Children of a kept beam.", show_default="4"),
    ] = None,
    problems: Annotated[
        int, typer.Option("--problems", min=1, max=100_000, help="Problems to solve, at most.")
    ] = 64,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, help="Problems that run at a time at most.")
    ] = 8,
    schedules: Annotated[
        list[Schedule] | None,
        typer.Option("--schedule", help="May be given several times.", show_default="all"),
    ] = None,
    speculation: SpeculationOption = Speculation.auto,
    traces: Annotated[
        Path | None,
        typer.Option(
            "--traces",
            callback=usable,
            metavar="FILE",
            help="Recorded chains, of which step lengths, ends and scores take their statistics.",
            show_default="a 1B model on MATH",
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay",
            callback=usable,
            metavar="RUN",
            help="A recorded run, which says what is solved, how, and what the engines answer.",
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
            help="The orchestrator's own time for a call.",
            show_default="0.5; with --tuned 0, for what was measured includes it",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the run.")] = 0,
) -> None:
    """Predict how schedules compare, for a deployment or for a usual pair; needs no GPU.

    The real search and scheduler run on simulated engines and virtual time
    (docs/explanation/simulation.md).
    """
    from tts.lab.bench.simulated_run import SimulationOptions, scenario_of
    from tts.lab.simulation.scenario import simulate as simulate_schedule
    from tts.reports.console import consoles, say
    from tts.reports.simulation import outcomes_table

    if sharing and gpus > 1 and deployment is None:
        raise typer.BadParameter("applies to --gpus 1 only", param_hint="--sharing")
    if traces and replay:
        raise typer.BadParameter("give one of --traces and --replay", param_hint="--traces")
    parameters = {"n": n, "beam_width": beam_width}
    wanted = SimulationOptions(
        gpu.value,
        gpus,
        (sharing or _Sharing.time_sliced).value,
        strategy,
        {name: value for name, value in parameters.items() if value is not None},
        problems,
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
    out, _ = consoles()
    out.print(outcomes_table(scenario, name, outcomes))
