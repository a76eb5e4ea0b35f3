"""`tts score`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .completion import datasets
from .json_output import print_json
from .options import DeploymentArgument, JsonOption, ServerOption, VerifierOption, usable

if TYPE_CHECKING:
    from tts.lab.scoring.score_run import ScoreRequest


def score(
    context: typer.Context,
    deployment: DeploymentArgument,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
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
            help="Set verifier.calibration in the deployment file: the map from a score to the "
            "probability of being right, if it holds on other problems.",
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
    from tts.build.deployment_edit import require_writable
    from tts.build.spec import deployment_file
    from tts.lab.scoring.score_run import ScoreRequest, score_chains
    from tts.lab.scoring.tables import write_tables
    from tts.lab.scoring.verifier_report import measured
    from tts.reports.console import consoles, say
    from tts.reports.measurement import measurement_report, print_measurement, print_rankings
    from tts.reports.progress import Bars

    if (file is None) == (dataset is None):
        raise typer.BadParameter(
            "give a file of chains, the folder of a run, or --dataset to sample them",
            param_hint="FILE",
        )
    if sampled := given_options(context) & {"limit", "n", "seed"} and dataset is None:
        raise typer.BadParameter("goes with --dataset", param_hint=f"--{min(sampled)}")
    if write:
        require_writable(deployment_file(deployment))
