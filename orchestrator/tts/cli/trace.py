"""`tts trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import usable


def trace(
    run: Annotated[
        Path,
        typer.Argument(
            callback=usable,
            metavar="RUN",
            help="Folder of a run, finished or not; a comparison's folder stands for its runs.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            callback=usable,
            metavar="FILE",
            help="Where to write it.",
            show_default="trace.pftrace in the run's folder",
        ),
    ] = None,
) -> None:
    """Write a run's timeline for Perfetto: requests by slot, decisions, flows, counters."""
    from tts.reports.console import say
    from tts.reports.trace import write_trace
    from tts.runs.measured_run import expand_groups

    runs = expand_groups([run])
    if out and len(runs) > 1:
        raise typer.BadParameter("the folder holds several runs", param_hint="--out")
    for folder in runs:
        file, counts = write_trace(folder, out)
        steps = f", {counts.steps:,} engine steps" if counts.steps else ""
        say(f"{file}: {counts.requests:,} requests, {counts.flows:,} flows{steps}")
    say("Open it at https://ui.perfetto.dev, which reads it in the browser and sends it nowhere.")
