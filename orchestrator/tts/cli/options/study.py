"""Options of the commands that study a deployment: tune, study, simulate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from tts.base.choices import ScheduleName, Sharing
from tts.strategies.names import STRATEGY_NAMES

from . import (
    DatasetOption,
    DeploymentArgument,
    JsonOption,
    OptionalDeployment,
    ParametersOption,
    ServerOption,
    SpeculationOption,
    completed,
    deployment_argument,
    out_option,
    path_option,
    run_option,
)

_NAMES: tuple[ScheduleName, ...] = get_args(ScheduleName)
Schedules: Any = Enum("Schedules", [(name, name) for name in _NAMES])  # type: ignore[misc]
"""The schedules as an enum: of choices, typer takes lists of these alone."""
Gpu = Literal["a100-80g", "h100", "h200"]


@dataclass(frozen=True, kw_only=True)
class Tune:
    """Measure throughput over load, and propose how much work to keep in flight.

    Proposes generator.in_flight_requests and verifier.in_flight_tokens: the upper end of the
    interval in which throughput reaches 95% of its best (docs/guides/tune.md).
    """

    deployment: DeploymentArgument
    run: Annotated[
        Path | None,
        run_option("Send the requests of this run.", show_default="a short run of beam search"),
    ] = None
    dataset: Annotated[
        str,
        typer.Option(
            autocompletion=completed("datasets"),
            help="What the short run solves: demo, or a JSONL file.",
        ),
    ] = "demo"
    seconds: Annotated[
        float, typer.Option(min=1, help="Measuring time of both engines; slow ones take longer.")
    ] = 60.0
    server: ServerOption = None
    write: Annotated[
        bool, typer.Option("--write", help="Write both numbers to the deployment file.")
    ] = False
    out: Annotated[Path | None, out_option("Folder of the result.")] = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Study:
    """Run many variants of a deployment and see what its two engines do, and why.

    Divisions of the KV memory, schedules, speculation, prefix reuse, problems in flight and n, each
    compared with the deployment as it is; figures in report.html, advice in words
    (docs/guides/tune.md#study).
    """

    context: typer.Context
    deployment: OptionalDeployment = None
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer variants and problems: about seven minutes.")
    ] = False
    dataset: DatasetOption = "demo"
    seed: Annotated[int, typer.Option(help="Seed of the runs and of generated problems.")] = 0
    server: ServerOption = None
    out: Annotated[Path | None, out_option("Study folder.")] = None
    resume: Annotated[
        Path | None,
        run_option("Continue the study there, or write the page of a finished one again.", "DIR"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """Predict how schedules compare, for a deployment or a typical pair; needs no GPU.

    The real search and scheduler run on simulated engines and virtual time
    (docs/explanation/simulation.md).
    """

    context: typer.Context
    deployment: Annotated[
        str | None,
        deployment_argument(
            "A deployment file or a bundled name.", show_default="Llama-3.2-1B with an 8B verifier"
        ),
    ] = None
    gpu: Annotated[Gpu, typer.Option(help="The kind of GPU.")] = "h100"
    gpus: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="2: one for each engine; 1: shared. With --placements: any number.",
            show_default="2; with --placements those of the deployment",
        ),
    ] = 2
    placements: Annotated[
        bool,
        typer.Option(
            "--placements",
            help="Compare every way to place both engines of the deployment on --gpus.",
        ),
    ] = False
    concurrency: Annotated[
        str | None,
        typer.Option(
            metavar="N,...", help="With --placements: problems at a time.", show_default="1,8,64"
        ),
    ] = None
    replicas: Annotated[
        int, typer.Option(min=1, max=64, help="Servers behind a router, each with its own GPUs.")
    ] = 1
    sharing: Annotated[
        Sharing | None,
        typer.Option(
            help="How engines share one GPU: the worst and the best case.",
            show_default="time-sliced",
        ),
    ] = None
    strategy: Annotated[
        str,
        typer.Option(autocompletion=completed("strategies"), help=f"{', '.join(STRATEGY_NAMES)}."),
    ] = "beam-search"
    n: Annotated[
        int | None, typer.Option(help="Completions per problem.", show_default="16; greedy: 1")
    ] = None
    parameters: ParametersOption = None
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Problems to solve.")] = 64
    in_flight: Annotated[int, typer.Option(min=1, help="Most problems at a time.")] = 8
    schedules: Annotated[
        list[Schedules] | None,
        typer.Option(
            "--schedule",
            metavar="NAME",
            help=f"A schedule: {', '.join(_NAMES)}. Repeat for several.",
            show_default="all",
        ),
    ] = None
    speculation: SpeculationOption = "auto"
    replay: Annotated[
        Path | None,
        run_option(
            "A recorded run, whose problems, settings and answers are replayed; or a file of "
            "chains, whose step lengths and scores are imitated.",
            "RUN|FILE",
            show_default="lengths and scores of a 1B model on MATH",
        ),
    ] = None
    tuned: Annotated[
        Path | None,
        path_option(
            "A result of tts tune, to which step times are fitted.",
            metavar="FILE",
            show_default="a roofline of the GPU",
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 0
    critique_tokens: Annotated[
        int | None,
        typer.Option(
            min=8,
            max=8192,
            help="Mean length of the critiques that the verifier writes.",
            show_default="none; with format critique a quarter of max_tokens",
        ),
    ] = None
    as_json: JsonOption = False
