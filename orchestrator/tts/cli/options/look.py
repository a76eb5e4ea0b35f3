"""Options of the commands that show what is there: report, runs, list, doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from . import JsonOption, completed, deployment_argument, path_option, usable

Kind = Literal["deployments", "strategies", "datasets"]


class FigureFormat(StrEnum):
    """The kinds of files that figures are written as."""

    pdf = "pdf"
    svg = "svg"
    png = "png"
    csv = "csv"
    tex = "tex"


def _run(text: str) -> Any:
    """The argument that names runs by their folders, with its help."""
    return typer.Argument(
        callback=usable, metavar="RUN", autocompletion=completed("runs"), help=text
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """Print the tables of a run, or compare several, and write report.html.

    Several are compared side by side, and each with the first problem by problem. The page has
    figures and search trees, needs no network, and is written to the run's folder, or beside
    several.
    """

    runs: Annotated[
        list[Path], _run("Folders of runs, finished or not, of comparisons, or of one study.")
    ]
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False
    keep_up: Annotated[
        bool,
        typer.Option(
            "--follow", help="Write the page again every few seconds while the run lasts."
        ),
    ] = False
    formats: Annotated[
        list[FigureFormat] | None,
        typer.Option(
            "--format",
            metavar="|".join(FigureFormat),
            help="Also write each figure as a file (csv and tex: its table) in figures/ beside "
            "the page. Repeat for several.",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="RUN[=NAME]",
            autocompletion=completed("runs"),
            help="The run to compare the others with, such as a larger model's, and its name in "
            "tables and figures.",
        ),
    ] = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class ListRuns:
    """List the runs that were recorded, newest first."""

    folder: Annotated[
        Path | None,
        typer.Argument(
            callback=usable,
            metavar="FOLDER",
            help="A folder with runs in it.",
            show_default="runs/ in TTS_HOME",
        ),
    ] = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Merge the shards of a run into one folder: trees, answers and digest of the whole run."""

    shards: Annotated[list[Path], _run("Folders of all N finished runs of tts bench --shard i/N.")]
    out: Annotated[Path, path_option("The folder of the whole run.")]


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write the problems of runs, or their completions, as one table for pandas and polars.

    docs/guides/notebooks.md describes the columns. Logs are read as a stream: memory stays small.
    """

    runs: Annotated[
        list[Path], _run("Folders of runs, finished or not, of comparisons, or with runs in them.")
    ]
    out: Annotated[
        Path | None,
        path_option(
            "The file to write: .parquet (extra `parquet`), .csv or .jsonl.",
            metavar="FILE",
            show_default="stdout, as JSONL",
        ),
    ] = None
    completions: Annotated[
        bool, typer.Option("--completions", help="A row for each completion, not each problem.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Write a run's timeline as Chrome's trace JSON: requests by slot, decisions, counters."""

    run: Annotated[Path, _run("Folder of a run, finished or not, or of a comparison.")]
    to: Annotated[
        Path | None,
        path_option(
            "Where to write it.", metavar="FILE", show_default="trace.json in the run's folder"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class List:
    """List the bundled deployments, the strategies with their parameters, or the datasets."""

    kind: Annotated[Kind, typer.Argument(metavar="WHAT", help="What to list.")]
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Say what this machine can run, what is missing, and the command to type next."""

    deployment: Annotated[
        str | None, deployment_argument("Also look at this deployment, a file or a bundled name.")
    ] = None
    as_json: JsonOption = False
