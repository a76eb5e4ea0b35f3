"""`tts study`: what follows from many runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.lab.study.cells import FULL, QUICK
from tts.lab.study.measure import measure
from tts.lab.study.study_run import resume_study, run_study
from tts.reports.console import consoles
from tts.reports.progress import Bars
from tts.reports.study_page import print_advice, study_report

from .completion import runs
from .options import DatasetOption, OptionalDeployment, ServerOption, given_options, usable


def study(
    context: typer.Context,
    deployment: OptionalDeployment = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Fewer cells, and as many problems as fit about seven minutes."
        ),
    ] = False,
    dataset: DatasetOption = "demo",
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the runs and of generated problems.")
    ] = 0,
    server: ServerOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", callback=usable, help="Study folder.", show_default="a new one under runs/"
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            callback=usable,
            autocompletion=runs,
            metavar="DIR",
            help="Continue the study there; finished runs are kept. Of a finished one, write the "
            "page again.",
        ),
    ] = None,
) -> None:
    """Run many variants of a deployment and see what its two engines do, and why.

    Divisions of the KV memory, schedules, speculation, prefix reuse, problems in flight and n, each
    compared with the deployment as it is; figures in report.html, advice in words
    (docs/guides/tune.md#study).
    """
    with Bars() as observer:
        if resume is not None:
            if fixed := given_options(context) & {"quick", "dataset", "seed", "server", "out"}:
                raise typer.BadParameter(
                    "a resumed study goes on as it began", param_hint=f"--{min(fixed)}"
                )
            finished = resume_study(resume, deployment, observer)
        elif deployment is None:
            raise typer.BadParameter("name one, or --resume a study", param_hint="DEPLOYMENT")
        else:
            form = QUICK if quick else FULL
            finished = run_study(
                deployment, form, out, observer, dataset=dataset, seed=seed, server=server
            )
    report = study_report(finished, measure(finished))
    page = report.write()
    stdout, _ = consoles()
    print_advice(stdout, report)
    stdout.print(f"page: {page}", style="dim", markup=False, soft_wrap=True)
