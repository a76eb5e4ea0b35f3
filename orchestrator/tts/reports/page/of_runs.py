"""The page of a run, of a group of runs, or of several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tts.reports.figures.charts import number
from tts.reports.figures.compare import compare_figures
from tts.reports.figures.figure import Figure
from tts.reports.figures.group import group_figures
from tts.reports.figures.key import right_share
from tts.reports.figures.run import figures_of
from tts.runs.config import RunConfig, read_run_config
from tts.runs.groups import is_group
from tts.runs.measured_run import MeasuredRun, expand_groups

from .facts import facts_of
from .page import FILE, write_page


@dataclass(frozen=True)
class Report:
    """What a page of runs shows, and where it is written."""

    file: Path
    title: str
    lead: str
    figures: list[Figure]
    runs: list[Path]

    def write(self) -> Path:
        """Write the page; raises RunError."""
        facts = facts_of(self.runs)
        return write_page(self.file, self.title, facts, self.figures, self.runs, lead=self.lead)


def report_of(folders: Sequence[Path]) -> Report:
    """The report of folders of runs and groups; raises RunError if one cannot be read.

    That of one folder lies in it; that of several in the first one, named for the others, too.
    """
    runs = expand_groups(folders)
    configs = [read_run_config(run) for run in runs]  # what is missing there is said by name
    if len(folders) == 1 and not is_group(folders[0]):
        return _of_run(folders[0], configs[0])
    figures = group_figures(folders)
    if len(folders) > 1 and len(runs) > 1:
        figures += compare_figures(runs)
    names = [folder.resolve().name for folder in folders]
    title = " and ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others"
    file = folders[0] / FILE
    if len(folders) > 1:
        file = file.with_name("-".join(["report-with", *names[1:]])[:100] + ".html")
    return Report(file, title, f"{len(runs)} runs side by side.", figures, runs)


def _of_run(folder: Path, config: RunConfig) -> Report:
    run = MeasuredRun.load(folder)
    solved = len(run.measures.problems)
    right = f", {right_share(run)} right" if run.accuracy is not None else ""
    return Report(
        folder / FILE,
        f"{config.strategy} on {config.deployment}",
        f"{number(solved)} problems of {config.dataset}{right}, in {folder.resolve().name}.",
        figures_of(run),
        [folder],
    )
