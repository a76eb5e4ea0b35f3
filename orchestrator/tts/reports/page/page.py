"""The page itself: figures, trees and facts in one HTML file, and files of trees beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from tts.build.errors import RunError
from tts.lab.study.advice import Advice
from tts.reports.figures.figure import Cell, Figure
from tts.runs.config import read_run_config
from tts.runs.durable import make_folder, write_whole
from tts.runs.files import refuse_link
from tts.runs.log import read_events

from .assets import chart_theme, policy, scripts, styles
from .packing import INLINE_BYTES, Layout, PackedTree, first_shown, lay_out, pack, packed_text
from .trees import problem_trees

FILE = "report.html"

ADVISED = (
    "A change is advised only where its 95% interval excludes that it makes no difference; each "
    "advice gives its interval and the figure that it rests on."
)
"""The sentence above all advice."""

Facts = Mapping[str, Mapping[str, Cell]]
"""The facts of a page by heading: names and values."""

_TEMPLATES = Path(__file__).parent / "templates"
PANE = _TEMPLATES / "pane.html.j2"
"""The template of a problem's pane, as HTML: other pages have it, too."""


def write_page(
    file: Path,
    title: str,
    facts: Facts,
    figures: Sequence[Figure],
    runs: Sequence[Path] = (),
    *,
    lead: str = "",
    advice: Sequence[Advice] = (),
    inline_bytes: int = INLINE_BYTES,
) -> Path:
    """Write a page of figures and of the search trees of `runs`, and return its file.

    `lead` is a sentence below the title; `advice` stands there, too. Trees beyond `inline_bytes`
    go to a folder beside the page, named as the page is: `report-files` for `report.html`. Raises
    RunError if a run cannot be read or nothing can be written.
    """
    packed = [_in_order(run) for run in runs]
    layout = lay_out(packed, inline_bytes)
    beside = file.with_name(f"{file.stem}-files")
    page = _page(title, lead, advice, facts, figures, _names(runs), packed, layout, beside.name)
    try:
        refuse_link(beside)
        if layout.files:
            make_folder(beside)
        for number, places in enumerate(layout.files):
            write_whole(beside / _file_name(number), _script(packed_text(packed, places)))
        write_whole(file, page.encode(errors="replace").decode())  # halves of surrogate pairs
        _remove_others(beside, len(layout.files))
    except OSError as error:
        raise RunError(
            f"The page {file} cannot be written: {error.strerror or error}.",
            hint="Copy the folder to a place where you may write, and run tts report on the copy.",
        ) from error
    return file


def _page(
    title: str,
    lead: str,
    advice: Sequence[Advice],
    facts: Facts,
    figures: Sequence[Figure],
    names: Sequence[str],
    packed: Sequence[Sequence[PackedTree]],
    layout: Layout,
    beside: str,
) -> str:
    shown = any(packed)
    own_scripts = scripts(charts=any(figure.chart for figure in figures), trees=shown)
    where = {
        place: _file_name(number) for number, places in enumerate(layout.files) for place in places
    }
    trees = {
        "folder": beside,
        "first": first_shown(packed),
        "runs": [
            {
                "name": name,
                "problems": [
                    {**tree.entry, "file": where.get((run, place))}
                    for place, tree in enumerate(of_run)
                ],
            }
            for run, (name, of_run) in enumerate(zip(names, packed, strict=True))
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
        title=title,
        lead=lead,
        advised=ADVISED,
        advice=advice,
        titles={figure.name: figure.title for figure in figures},
        facts=facts,
        figures=figures,
        trees=shown,
        policy=policy(own_scripts, styles(), files=bool(layout.files)),
        style=Markup(styles()),
        scripts=[Markup(script) for script in own_scripts],
        theme=_json(chart_theme("currentColor")),
        figure_data=_json([_figure_data(figure) for figure in figures]),
        tree_data=_json(trees),
        packed_data=_json(packed_text(packed, layout.inline)),
    )


def _in_order(run: Path) -> list[PackedTree]:
    """The packed trees of a run, in the order of its problems; raises RunError."""
    config = read_run_config(run)
    trees = [pack(tree) for tree in problem_trees(read_events(run), config.vote)]
    place = {name: number for number, name in enumerate(config.problem_ids)}
    return sorted(trees, key=lambda tree: place.get(tree.entry["id"], len(place)))


def _names(runs: Sequence[Path]) -> list[str]:
    """The runs' folder names, with their parents' where that is needed to tell them apart."""
    short = [run.resolve().name for run in runs]
    if len(set(short)) == len(short):
        return short
    return [f"{run.resolve().parent.name}/{name}" for run, name in zip(runs, short, strict=True)]


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


def _script(packed: Any) -> str:
    return f"ttsReport.addTrees({_json(packed)});\n"


def _file_name(number: int) -> str:
    return f"{number + 1:03d}.js"


def _remove_others(beside: Path, count: int) -> None:
    """Remove what an earlier, larger page has left beside this one."""
    for file in _numbered(beside):
        if int(file.stem) > count:
            file.unlink()
    if beside.is_dir() and not any(beside.iterdir()):
        beside.rmdir()


def _numbered(beside: Path) -> Iterator[Path]:
    return (file for file in beside.glob("*.js") if file.stem.isascii() and file.stem.isdigit())
