"""`tts tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import DeploymentArgument


def tune(
    deployment: DeploymentArgument,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="Take the requests from this run's log.",
            show_default="a short run of beam search, made first",
        ),
    ] = None,
    dataset: Annotated[
        str, typer.Option("--dataset", help="What the short run solves: demo, or a JSONL file.")
    ] = "demo",
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            min=1,
            help="Time to measure, both engines together; slow ones take at least two rounds.",
        ),
    ] = 60.0,
    write: Annotated[
        bool, typer.Option("--write", help="Set both budgets in the deployment file.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the result.", show_default="a new one under runs/"),
    ] = None,
) -> None:
    """Measure throughput over the load in flight, and propose how much to keep in flight.

    Sets generator.in_flight_requests and verifier.in_flight_tokens: the upper end of the interval
    in which throughput reaches 95% of its best (docs/tuning.md).
    """
    from tts.tuning.tune import run_tune

    run_tune(deployment, run, dataset, seconds, out, write=write)
