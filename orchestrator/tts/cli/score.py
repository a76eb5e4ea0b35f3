"""`tts score`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.lab.scoring.calibrate import calibrate
from tts.lab.scoring.calibration_file import writable_file, write_calibration
from tts.lab.scoring.findings import findings_of
from tts.lab.scoring.measurement import measure
from tts.lab.scoring.score_run import ScoreRequest, score_chains
from tts.lab.scoring.tables import write_tables
from tts.reports.console import consoles, say
from tts.reports.measurement import measurement_report, print_measurement, print_rankings
from tts.reports.progress import Bars
from tts.runs.verdicts import Finding

from .command import command_line
from .completion import datasets
from .documents.scores import ScoreDocument
from .json_output import print_json
from .options import (
    DeploymentArgument,
    JsonOption,
    ServerOption,
    VerifierOption,
    given_options,
    usable,
)
from .runs import given_sources


def score(
    context: typer.Context,
    deployment: DeploymentArgument,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            callback=usable,
            help="Chains to score: a JSONL, JSON, CSV or Parquet file (ProcessBench, PRM800K and "
            "Math-Shepherd as published; problem, steps, labels; problem, candidates), or the "
            "folder of a finished run.",
            show_default=False,
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            autocompletion=datasets,
            help="In place of FILE: sample answers to the problems of a dataset first, as for tts "
            "bench, and score every step of them.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="With --dataset: problems to sample.")
    ] = 200,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="With --dataset: answers each.")] = 8,
    seed: Annotated[int, typer.Option("--seed", help="With --dataset: seed of the samples.")] = 0,
    verifier: VerifierOption = None,
    endpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="HOST:PORT",
            help="A server of the deployment to use; give it several times for several servers.",
            show_default="those of the deployment, or of this machine",
        ),
    ] = None,
    server: ServerOption = None,
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Set verifier.calibration in the deployment file: how well scores tell right from "
            "wrong, and what probability a score stands for where a map holds on other problems.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            callback=usable,
            help="Folder of the scores; the same command with the same folder goes on where it was "
            "interrupted.",
            show_default="a new one under runs/",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Score solutions that exist already, say which are best, and measure the verifier on labels.

    Only the verifier's engine is started. Where steps or answers have labels the scores are
    measured against them (docs/guides/know-your-verifier.md); candidates are ranked
    (docs/start/best-of-candidates.md).
    """
    if (file is None) == (dataset is None):
        raise typer.BadParameter(
            "give a file of chains, the folder of a run, or --dataset to sample them",
            param_hint="FILE",
        )
    of_samples = given_options(context) & {"limit", "n", "seed"}
    if of_samples and dataset is None:
        raise typer.BadParameter("goes with --dataset", param_hint=f"--{min(of_samples)}")
    if write and verifier is not None:
        raise typer.BadParameter(
            "is for the deployment's own verifier; name the function in the file as "
            "verifier.function",
            param_hint="--write",
        )
    own_file = writable_file(deployment) if write else None
    request = ScoreRequest(
        deployment=deployment,
        input=file,
        dataset=dataset,
        limit=limit,
        n=n,
        seed=seed,
        source=given_sources([], verifier, deployment).get("verifier"),
        server=server,
        endpoints=tuple(endpoints or ()),
        command=tuple(command_line(context)),
    )
    with Bars() as observer:
        scored = score_chains(request, out, observer)
    measurement = measure(scored.chains, length_unit=scored.length_unit)
    final, inner = measurement.final, measurement.inner
    maps = calibrate(final.these if final else None, inner.these if inner else None)
    findings = [*findings_of(measurement), Finding("cost", str(scored.cost))]
    page = None
    if measurement.main:
        facts = {"Scoring": scored.facts}
        title = f"The verifier of {scored.deployment.name}, on {scored.source}"
        page = measurement_report(
            scored.folder / "report.html", title, measurement, findings, maps, facts
        ).write()
    names = write_tables(scored, measurement)
    is_written = bool(own_file and write_calibration(own_file, scored, measurement, maps))
    if as_json:
        print_json(ScoreDocument.of(scored, measurement, findings, maps, page, written=is_written))
    else:
        stdout, _ = consoles()
        if scored.rankings:
            print_rankings(stdout, scored.rankings)
        if measurement.main or not scored.rankings:
            print_measurement(stdout, measurement, findings, maps if final else None)
        else:
            stdout.print(str(scored.cost), markup=False, soft_wrap=True)
    say(f"as JSONL, CSV and Parquet in {scored.folder}: {', '.join(names)}")
    if page:
        say(f"the page: {page}")
    if own_file:
        say(f"verifier.calibration: {'written to' if is_written else 'nothing for'} {own_file}")
