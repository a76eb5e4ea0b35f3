"""The page itself: figures, trees and facts in one HTML file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from tts.base.errors import RunError
from tts.lab.study.advice import StudyAdvice
from tts.reports.figures.charts import Cell, Figure, TableRow
from tts.runs.config import read_run_config
from tts.runs.files import write_whole
from tts.runs.folder import EVENTS
from tts.runs.groups import short_names
from tts.runs.log import read_events
from tts.runs.state import all_problems

from .assets import chart_theme, policy, scripts, styles
from .trees import PackedTree, first_shown, pack

FILE = "report.html"
MAX_LOG_BYTES = 100_000_000
"""Bytes of logs, at most, whose trees a page holds, so that it opens within two seconds: of more,
those of every second problem, every third, ..."""

ADVISED = (
    "Advice",
    "A change is advised only where its interval excludes that it makes no difference; each advice "
    "gives its interval and the figure that it rests on. The intervals of all cells hold together "
    "in 95% of studies; that of a batch size is a 95% interval of its own.",
)
"""The heading of a study's advice, and the sentence above all of it."""

Facts = Mapping[str, Mapping[str, Cell]]
"""The facts of a page by heading: names and values."""

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Progress:
    """How far a run is that has not finished."""

    done: int
    total: int
    then: str
    """What becomes of its page."""
    written: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


@dataclass(frozen=True)
class Report:
    """The content of a page, and the file that it is written to."""

    file: Path
    title: str
    figures: Sequence[Figure] = ()
    runs: Sequence[Path] = ()
    """The folders of the runs whose search trees it shows."""
    facts: Facts = field(default_factory=dict)
    lead: str = ""
    """A sentence below the title."""
    advice: Sequence[StudyAdvice] = ()
    """The advice of a study, or what a measurement says."""
    advised: tuple[str, str] = ADVISED
    """The heading above it, and what it rests on."""
    progress: Progress | None = None
    """The progress of a run that has not finished; without figures the page reloads by itself."""

    @property
    def tables(self) -> list[Figure]:
        """The figures, and before them the advice as a table."""
        rows: list[TableRow] = [
            {
                "advice about": each.subject,
                "advice": each.text,
                "rests on": self.title_of(each.figure),
            }
            for each in self.advice
        ]
        heading, hint = self.advised
        return [*([Figure("advice", heading, hint, rows)] if rows else []), *self.figures]

    def title_of(self, figure: str) -> str:
        """The title of a figure by its name."""
        return next((each.title for each in self.figures if each.name == figure), figure)

    def write(self) -> Path:
        """Write the page; raises RunError if a run cannot be read or nothing can be written."""
        content = _html(self).encode(errors="replace")  # halves of surrogate pairs
        try:
            write_whole(self.file, content)
        except OSError as error:
            raise RunError(
                f"The page {self.file} cannot be written: {error.strerror or error}.",
                hint="Copy the folder to a place where you may write, and run tts report on the "
                "copy.",
            ) from error
        return self.file


def _html(report: Report) -> str:
    logs = (run / EVENTS for run in report.runs)
    size = sum(log.stat().st_size for log in logs if log.exists())
    every = max(1, math.ceil(size / MAX_LOG_BYTES))
    packed = [_in_order(run, every) for run in report.runs]
    tex = any(tree.tex for of_run in packed for tree in of_run)
    own_scripts = scripts(
        charts=any(figure.chart for figure in report.figures), trees=any(packed), tex=tex
    )
    style = styles(tex=tex)
    trees = {
        "first": first_shown(packed),
        "runs": [
            {"name": name, "problems": [tree.entry for tree in of_run]}
            for name, of_run in zip(short_names(report.runs), packed, strict=True)
        ],
    }
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        **vars(report),
        titles={figure.name: figure.title for figure in report.figures},
        trees=any(packed),
        every=every,
        policy=policy(own_scripts, style),
        style=Markup(style),
        scripts=[Markup(script) for script in own_scripts],
        theme=_json(chart_theme("currentColor")),
        figure_data=_json([_figure_data(figure) for figure in report.figures]),
        tree_data=_json(trees),
        packed_data=_json([[tree.packed for tree in of_run] for of_run in packed]),
    )


def _in_order(run: Path, every: int) -> list[PackedTree]:
    """The packed trees of a run, of one problem in `every`, in order; raises RunError."""
    config = read_run_config(run)
    events = read_events(run)
    if every > 1:
        sample = {None, *config.problem_ids[::every]}
        events = (event for event in events if getattr(event, "problem", None) in sample)
    trees = [pack(problem, config.vote) for problem in all_problems(events)]
    place = {name: number for number, name in enumerate(config.problem_ids)}
    return sorted(trees, key=lambda tree: place.get(tree.entry["id"], len(place)))


def _figure_data(figure: Figure) -> dict[str, Any]:
    columns = figure.columns
    return {
        "name": figure.name,
        "title": figure.title,
        "chart": figure.chart,
        "columns": columns,
        "rows": [[_plain(row.get(name)) for name in columns] for row in figure.rows],
    }


def _plain(cell: Cell) -> Cell:
    """A cell as JSON allows it: NaN and infinities become null."""
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _json(data: Any) -> Markup:
    """Data as the text of a script element, which nothing in it can end."""
    return htmlsafe_json_dumps(data, separators=(",", ":"))
