"""`tts tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.build.deployment_edit import require_writable, write_values
from tts.build.spec import deployment_file
from tts.lab.tuning.tune import tune as tune_engines
from tts.reports.console import consoles
from tts.reports.progress import Bars
from tts.reports.tuning import print_change, print_tuned

from .completion import datasets, runs
from .documents.deployments import TuneDocument
from .json_output import print_json
from .options import DeploymentArgument, JsonOption, ServerOption, usable


def tune(
    deployment: DeploymentArgument,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            callback=usable,
            metavar="RUN",
            autocompletion=runs,
            help="Take the requests from this run's log.",
            show_default="a short run of beam search, made first",
        ),
    ] = None,
    dataset: Annotated[
        str,
        typer.Option(
            "--dataset",
            autocompletion=datasets,
            help="What the short run solves: demo, or a JSONL file.",
        ),
    ] = "demo",
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            min=1,
            help="Time to measure, both engines together; slow ones take at least two rounds.",
        ),
    ] = 60.0,
    server: ServerOption = None,
    write: Annotated[
        bool, typer.Option("--write", help="Set both budgets in the deployment file.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            callback=usable,
            help="Folder of the result.",
            show_default="a new one under runs/",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure throughput over the load in flight, and propose how much to keep in flight.

    Proposes generator.in_flight_requests and verifier.in_flight_tokens: the upper end of the
    interval in which throughput reaches 95% of its best (docs/guides/tune.md).
    """
    file = deployment_file(deployment)
    if write:
        require_writable(file)
    with Bars() as observer:
        tuned = tune_engines(
            deployment,
            run=run,
            dataset=dataset,
            seconds=seconds,
            server=server,
            out=out,
            observer=observer,
        )
    if as_json:
        if changed := bool(write and tuned.changes):
            write_values(file, tuned.changes)
        print_json(TuneDocument.of(str(file), tuned, written=changed))
        if tuned.interrupted:
            raise tuned.interrupted
        return
    stdout, _ = consoles()
    print_tuned(stdout, tuned)
    if tuned.interrupted:
        raise tuned.interrupted
    if tuned.changes:
        print_change(stdout, file, tuned.changes)
    elif tuned.proposals:
        stdout.print("The deployment file says so already.")
    if tuned.changes and write:
        write_values(file, tuned.changes)
        stdout.print(f"Written to {file}", markup=False, soft_wrap=True)
    elif tuned.changes:
        stdout.print("--write makes this change.", markup=False, soft_wrap=True)
