"""`tts compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import usable


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            callback=usable,
            metavar="RUN RUN...",
            help="Folders of runs, finished or not; a comparison's folder stands for its runs. "
            "Each is compared with the first.",
        ),
    ],
) -> None:
    """Compare runs problem by problem: what differs, by how much, and on which problems."""
    from tts.reports.console import consoles
    from tts.reports.paired import paired_report, settings_table
    from tts.runs.compare import compare_runs, differing_settings, short_names
    from tts.runs.measured_run import MeasuredRun, expand_groups

    folders = expand_groups(runs)
    if len(folders) < 2:
        raise typer.BadParameter("name two runs or more", param_hint="RUN RUN...")
    measured = [MeasuredRun.load(folder) for folder in folders]
    pairs = compare_runs(measured)
    names = short_names(folders)
    out, _ = consoles()
    out.print(settings_table(differing_settings([run.config for run in measured]), names))
    for pair, name in zip(pairs, names[1:], strict=True):
        out.print(paired_report(pair, names[0], name))
