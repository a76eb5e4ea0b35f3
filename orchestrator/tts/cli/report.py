"""`tts report` and `tts runs`: what is made of runs that were recorded."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import typer
from typer import BadParameter

from tts.base import paths
from tts.base.errors import RunError
from tts.base.user_paths import is_there
from tts.lab.bench.sharded_run import merge_runs
from tts.lab.study.advice import StudyAdvice
from tts.lab.study.folder import is_study
from tts.lab.study.measure import measure
from tts.lab.study.study_run import finished_study
from tts.reports.console import consoles, say
from tts.reports.page.export import write_figures
from tts.reports.page.of_runs import follow, report_on
from tts.reports.page.page import Report
from tts.reports.study_page import print_advice, study_report
from tts.reports.terminal import listed_table, print_report
from tts.reports.trace import write_trace
from tts.runs.compare import Baseline, Comparison, Pair, Setting, compare
from tts.runs.files import replacing
from tts.runs.folder import CONFIG, EVENTS, PROBLEMS, SUMMARY
from tts.runs.groups import list_runs, runs_in
from tts.runs.tables import (
    CompletionRow,
    ProblemRow,
    TableKind,
    as_table,
    completion_rows,
    problem_rows,
    write_table,
)

from .json_output import print_json
from .options import look
from .runs import RunsDocument


@dataclass(frozen=True, kw_only=True)
class ReportDocument(RunsDocument):
    """Runs, or a study, and the page that was written."""

    settings: list[Setting]
    """The settings in which runs of several folders differ."""
    pairs: list[Pair]
    """Each run of several folders against the first."""
    advice: list[StudyAdvice]
    """What a study advises; empty for runs."""
    page: str | None
    """null where none can be made of these runs."""
    figures: list[str]
    """The files that --format has written."""


def report(options: look.Report) -> None:
    """Run `tts report`."""
    open_page = options.open_page
    against = _baseline(options.baseline) if options.baseline else None
    if options.keep_up:
        if against:
            raise BadParameter("goes without --baseline", param_hint="--follow")
        open_page = _follow(options.runs, open_page)
    folders = [*options.runs, *([against.folder] if against else [])]
    if len(set(map(Path.resolve, folders))) < len(folders):
        raise BadParameter("a run is named twice", param_hint="RUN...")
    study: Report | None = None
    comparison = Comparison()
    if len(options.runs) == 1 and is_study(options.runs[0]):
        if against:
            raise BadParameter("a study has its own", param_hint="--baseline")
        finished = finished_study(options.runs[0])
        study = study_report(finished, measure(finished))
    else:
        comparison = compare(options.runs, against, answers=options.as_json)
    page: Path | None = None
    figures: list[Path] = []
    try:
        output = study or report_on(comparison)
        if options.formats:
            folder = output.file.with_name("figures")
            figures = write_figures(output.tables, folder, [kind.value for kind in options.formats])
            say(f"{len(figures)} files in {folder}")
        page = output.write()
        say(f"page: {page}")
    except RunError as error:
        if options.formats or open_page:
            raise
        say(f"No page: {error}")  # the tables are shown all the same
    if study and not options.as_json:
        print_advice(consoles()[0], study)
    elif not options.as_json:
        print_report(comparison)
    if options.as_json:
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
        _open(page)


def _open(page: Path) -> None:
    """Open a page in the browser, where there is one."""
    if not webbrowser.open(page.resolve().as_uri()):
        say("No browser can be opened here: open the page elsewhere.")


def _baseline(text: str) -> Baseline:
    """What `--baseline RUN[=NAME]` names; a folder's own name may hold an equals sign."""
    folder, _, name = (text, "", "") if is_there(Path(text)) else text.rpartition("=")
    return Baseline(Path(folder or text), name if folder else "")


def _follow(runs: list[Path], open_page: bool) -> bool:
    """Keep the page of a run up to date until the run ends; whether it is still to be opened."""
    if len(runs) != 1:
        raise BadParameter("goes with one run", param_hint="--follow")
    last_line = ""
    for page in follow(runs[0]):
        line = f"page: {page}" if isinstance(page, Path) else f"No page yet: {page}"
        if line != last_line:
            say(line)
        last_line = line
        if open_page and isinstance(page, Path):
            _open(page)
            open_page = False
    return open_page


def list_recorded(options: look.ListRuns) -> None:
    """Run `tts runs list`."""
    where = options.folder or paths.runs_dir()
    recorded = list_runs(where) if options.folder or is_there(where) else []
    if options.as_json:
        print_json(recorded)
    elif recorded:
        consoles()[0].print(listed_table(recorded))
    else:
        say(f"There are no runs in {where} yet: tts bench DEPLOYMENT records one.")


def merge(options: look.Merge) -> None:
    """Run `tts runs merge`."""
    folder = merge_runs(options.shards, options.out)
    print_report(compare([folder]))
    say(f"figures and search trees, as a page: tts report --open {folder}")


def export(options: look.Export) -> None:
    """Run `tts runs export`."""
    runs, out, completions = options.runs, options.out, options.completions
    kind = out.suffix.lower().removeprefix(".") if out else "jsonl"
    if kind not in get_args(TableKind):
        raise BadParameter("must end with .parquet, .csv or .jsonl", param_hint="--out")
    for folder in runs:
        for run, _ in runs_in(folder):
            _spare(run, out, "--out")
    of, rows = (CompletionRow, completion_rows) if completions else (ProblemRow, problem_rows)
    if out is None:
        for row in rows(runs):
            typer.echo(as_table([row], kind, of).decode(), nl=False)
        return
    try:
        with replacing(out.expanduser().parent.resolve() / out.name) as stream:
            count = write_table(stream, kind, of, rows(runs))
    except OSError as error:
        raise RunError(
            f"The table {out} cannot be written: {error.strerror or error}.",
            hint="Name another file with --out, in a folder that is there; without --out it goes "
            "to stdout.",
        ) from error
    say(f"{out}: {count:,} {'completions' if completions else 'problems'}")


def trace(options: look.Trace) -> None:
    """Run `tts runs trace`."""
    runs = [folder for folder, _ in runs_in(options.run)]
    if options.to and len(runs) > 1:
        raise BadParameter("the folder holds several runs", param_hint="--to")
    for folder in runs:
        _spare(folder, options.to, "--to")
        file, counts = write_trace(folder, options.to)
        steps = f", {counts.steps:,} engine steps" if counts.steps else ""
        say(f"{file}: {counts.requests:,} requests, {counts.flows:,} flows{steps}")
    say(
        "Open it at chrome://tracing, or at https://ui.perfetto.dev, which reads it in the browser "
        "and sends it nowhere."
    )


def _spare(run: Path, to: Path | None, option: str) -> None:
    """Refuse to write over what a run is made of; raises BadParameter."""
    own = {(run / name).resolve() for name in (CONFIG, PROBLEMS, EVENTS, SUMMARY)}
    if to and to.expanduser().resolve() in own:
        raise BadParameter(f"{to} is a part of the run itself", param_hint=option)
