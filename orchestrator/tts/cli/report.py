"""`tts report` and `tts runs`: what is made of runs that were recorded."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tts.base import paths
from tts.base.errors import RunError
from tts.base.user_paths import is_there
from tts.lab.bench.sharded_run import merge_runs
from tts.lab.study.folder import is_study
from tts.lab.study.measure import measure
from tts.lab.study.study_run import finished_study
from tts.reports.console import consoles, say
from tts.reports.page import Report
from tts.reports.page.export import write_figures
from tts.reports.page.of_runs import follow, report_on
from tts.reports.study_page import print_advice, study_report
from tts.reports.terminal import listed_table, print_report
from tts.reports.trace import write_trace
from tts.runs.answers import answers_of, as_table
from tts.runs.compare import Baseline, Comparison, compare
from tts.runs.files import write_whole
from tts.runs.folder import CONFIG, EVENTS, PROBLEMS, SUMMARY
from tts.runs.groups import expand_groups, list_runs
from tts.runs.run import Run

from .completion import runs as run_folders
from .documents.runs import ReportDocument
from .json_output import print_json
from .options import JsonOption, usable


class FigureFormat(StrEnum):
    """The kinds of files that figures are written as."""

    pdf = "pdf"
    svg = "svg"
    png = "png"
    csv = "csv"
    tex = "tex"


class TableFormat(StrEnum):
    """The kinds of tables that answers are written as."""

    jsonl = "jsonl"
    csv = "csv"


def _run(text: str) -> Any:
    """The argument that names runs by their folders, with its help."""
    return typer.Argument(callback=usable, metavar="RUN", autocompletion=run_folders, help=text)


def report(
    runs: Annotated[
        list[Path],
        _run("Folders of runs, finished or not, or of whole comparisons; or one study."),
    ],
    open_page: Annotated[
        bool, typer.Option("--open", help="Show the page in the browser.")
    ] = False,
    keep_up: Annotated[
        bool,
        typer.Option(
            "--follow", help="While the run goes on, write the page anew every few seconds."
        ),
    ] = False,
    formats: Annotated[
        list[FigureFormat] | None,
        typer.Option(
            "--format",
            metavar="|".join(FigureFormat),
            help="Also write each figure as a file of this kind (csv and tex: its table), in "
            "figures/ beside the page; several times for several kinds.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="RUN[=NAME]",
            autocompletion=run_folders,
            help="The run that the others are compared with, such as a larger model's, and its "
            "name in tables and figures, by default its deployment's.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the tables of a run, or compare several, and write report.html.

    Several are compared side by side, and each with the first problem by problem: settings, gains,
    costs, trees. Without a common problem the command fails. The page shows figures and search
    trees and opens without network. It is written to the run's folder, or beside those of several.
    """
    against = _baseline(baseline) if baseline else None
    if keep_up:
        if against:
            raise typer.BadParameter("goes without --baseline", param_hint="--follow")
        open_page = _follow(runs, open_page)
    folders = [*runs, *([against.folder] if against else [])]
    if len(set(map(Path.resolve, folders))) < len(folders):
        raise typer.BadParameter("a run is named twice", param_hint="RUN...")
    study: Report | None = None
    comparison = Comparison()
    if len(runs) == 1 and is_study(runs[0]):
        if against:
            raise typer.BadParameter("a study has its own", param_hint="--baseline")
        finished = finished_study(runs[0])
        study = study_report(finished, measure(finished))
    else:
        comparison = compare(runs, against)
    page: Path | None = None
    figures: list[Path] = []
    try:
        output = study or report_on(comparison)
        if formats:
            folder = output.file.with_name("figures")
            figures = write_figures(output.tables, folder, [kind.value for kind in formats])
            say(f"{len(figures)} files in {folder}")
        page = output.write()
        say(f"page: {page}")
    except RunError as error:
        if formats or open_page:
            raise
        say(f"No page: {error}")  # the tables are shown all the same
    if study and not as_json:
        print_advice(consoles()[0], study)
    elif not as_json:
        print_report(comparison)
    if as_json:
        print_json(
            ReportDocument(
                rows=comparison.rows,
                unfinished=comparison.unfinished,
                settings=comparison.settings,
                pairs=comparison.pairs,
                advice=list(study.advice) if study else [],
                page=str(page) if page else None,
                figures=list(map(str, figures)),
            )
        )
    if page and open_page:
        typer.launch(page.resolve().as_uri())


def _baseline(text: str) -> Baseline:
    """What `--baseline RUN[=NAME]` names; a folder's own name may hold an equals sign."""
    folder, _, name = (text, "", "") if Path(text).exists() else text.rpartition("=")
    path = Path(folder or text)
    usable(path)
    return Baseline(path, name if folder else "")


def _follow(runs: list[Path], open_page: bool) -> bool:
    """Keep the page of a run up to date until the run ends; whether it is still to be opened."""
    if len(runs) != 1:
        raise typer.BadParameter("goes with one run", param_hint="--follow")
    last_line = ""
    for page in follow(runs[0]):
        line = f"page: {page}" if isinstance(page, Path) else f"No page yet: {page}"
        if line != last_line:
            say(line)
        last_line = line
        if open_page and isinstance(page, Path):
            typer.launch(page.resolve().as_uri())
            open_page = False
    return open_page


def list_recorded(
    folder: Annotated[
        Path | None,
        typer.Argument(
            callback=usable,
            metavar="FOLDER",
            help="A folder with runs in it.",
            show_default="runs/ in TTS_HOME",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs that were recorded, newest first."""
    where = folder or paths.runs_dir()
    recorded = list_runs(where) if folder or is_there(where) else []
    if as_json:
        print_json(recorded)
    elif recorded:
        consoles()[0].print(listed_table(recorded))
    else:
        say(f"There are no runs in {where} yet: tts bench DEPLOYMENT records one.")


def merge(
    shards: Annotated[
        list[Path],
        _run("Folders of finished runs of tts bench --shard i/N, every i of one N."),
    ],
    out: Annotated[
        Path, typer.Option("--out", callback=usable, help="The folder of the whole run.")
    ],
) -> None:
    """Merge the shards of a run: one folder with the trees, answers and digest of the whole run."""
    folder = merge_runs(shards, out)
    print_report(compare([folder]))
    say(f"figures and search trees, as a page: tts report --open {folder}")


def export(
    run: Annotated[
        Path,
        _run("Folder of a run, finished or not."),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            callback=usable,
            metavar="FILE",
            help="The file to write.",
            show_default="stdout",
        ),
    ] = None,
    kind: Annotated[
        TableFormat | None,
        typer.Option(
            "--format",
            metavar="|".join(TableFormat),
            help="A JSON object a line, or CSV with a header.",
            show_default="as the file is named; else jsonl",
        ),
    ] = None,
) -> None:
    """Write a run's answers: id, question, answer, score, correct, tokens, seconds.

    A finished run has both tables in its folder: answers.jsonl and answers.csv.
    """
    _spare(run, to)
    usual = TableFormat.csv if to and to.suffix.lower() == ".csv" else TableFormat.jsonl
    answers = answers_of(Run.load(run))
    table = as_table(answers, kind or usual)
    if to is None:
        typer.echo(table, nl=False)
        return
    try:
        file = to.expanduser().parent.resolve() / to.name
        write_whole(file, table)
    except OSError as error:
        raise RunError(
            f"The table {to} cannot be written: {error.strerror or error}.",
            hint="Name another file with --to, in a folder that is there; without --to it goes to "
            "stdout.",
        ) from error
    say(f"{to}: {len(answers):,} answers")


def trace(
    run: Annotated[
        Path,
        _run("Folder of a run, finished or not; a comparison's folder stands for its runs."),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            callback=usable,
            metavar="FILE",
            help="Where to write it.",
            show_default="trace.json in the run's folder",
        ),
    ] = None,
) -> None:
    """Write a run's timeline as Chrome's trace JSON: requests by slot, decisions, counters."""
    runs = expand_groups([run])
    if to and len(runs) > 1:
        raise typer.BadParameter("the folder holds several runs", param_hint="--to")
    for folder in runs:
        _spare(folder, to)
        file, counts = write_trace(folder, to)
        steps = f", {counts.steps:,} engine steps" if counts.steps else ""
        say(f"{file}: {counts.requests:,} requests, {counts.flows:,} flows{steps}")
    say(
        "Open it at chrome://tracing, or at https://ui.perfetto.dev, which reads it in the browser "
        "and sends it nowhere."
    )


def _spare(run: Path, to: Path | None) -> None:
    """Refuse to write over what a run is made of; raises BadParameter."""
    own = {(run / name).resolve() for name in (CONFIG, PROBLEMS, EVENTS, SUMMARY)}
    if to and to.expanduser().resolve() in own:
        raise typer.BadParameter(f"{to} is a part of the run itself", param_hint="--to")
