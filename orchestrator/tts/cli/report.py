"""`tts report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import usable


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            callback=usable,
            metavar="RUN...",
            help="Folders of finished runs, or of whole comparisons; or one study.",
        ),
    ],
    open_page: Annotated[
        bool, typer.Option("--open", help="Show the page in the browser.")
    ] = False,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Also each figure as a PDF file, in figures/ there.")
    ] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Likewise as SVG.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Likewise as PNG.")] = False,
) -> None:
    """Print the tables of a run, or of several side by side, and write report.html.

    The page shows figures and search trees; it opens without network, and lies in the run's folder.
    """
    from tts.build.errors import RunError
    from tts.lab.study.campaign import finished_study
    from tts.lab.study.folder import is_study
    from tts.lab.study.measure import measure
    from tts.reports.console import consoles, say
    from tts.reports.live_tree import report_comparison, report_run
    from tts.reports.page.export import Format, export_figures
    from tts.reports.page.of_runs import Report, report_of
    from tts.reports.study import StudyReport, print_advice
    from tts.runs.groups import is_group
    from tts.runs.summary import read_summary

    found: Report | StudyReport | None = None
    if len(runs) == 1 and is_study(runs[0]):
        study = finished_study(runs[0])
        found = StudyReport(study, measure(study))
        print_advice(consoles()[0], found.findings)
    elif any(is_group(run) for run in runs):
        report_comparison(runs)
    else:
        report_run(runs, [read_summary(run) for run in runs])
    wanted: dict[Format, bool] = {"pdf": pdf, "svg": svg, "png": png}
    formats = [name for name, given in wanted.items() if given]
    try:
        found = found or report_of(runs)
        if formats:
            folder = found.file.with_name("figures")
            say(f"{len(export_figures(found.figures, folder, formats))} files in {folder}")
        page = found.write()
    except RunError as error:
        if formats or open_page:
            raise
        say(f"No page: {error}")  # the tables were printed all the same
        return
    say(f"page: {page}")
    if open_page:
        typer.launch(page.resolve().as_uri())
