"""Figures and tables as files for papers: PDF, SVG and PNG (extra `figures`), CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from tts.base.errors import ConfigError, RunError
from tts.base.extras import how_to_install
from tts.base.shown_text import printable
from tts.reports.figures.charts import DATA, Cell, Figure, Spec
from tts.runs.files import make_folder, write_whole
from tts.runs.tables import csv_cell

from .assets import chart_theme

Format = Literal["pdf", "svg", "png", "csv", "tex"]
DRAWN: Sequence[Format] = ("pdf", "svg", "png")
"""Formats of charts; the others are of the tables behind the figures."""
WIDTH = 480
"""The width in points of a chart that is as wide as its page."""
PNG_DPI = 300
"""Pixels per inch of a PNG, which its file says."""
_VEGA_LITE = "6.4"
"""Nearest to the version that pages are drawn with."""
_LINE_ENDS = dict.fromkeys((0x2028, 0x2029, 0xFFFE, 0xFFFF), " ")
"""Vega-Lite cannot read its own expressions with the first two, and XML has not the others."""


def write_figures(figures: Sequence[Figure], folder: Path, formats: Sequence[Format]) -> list[Path]:
    """Write each figure to `folder` in every format; the files.

    Charts become PDF, SVG and PNG files; the table of each figure, with a chart or without, becomes
    a CSV file and a LaTeX table for the package booktabs. Raises ConfigError where the package that
    draws charts is wanted and not installed, RunError where nothing can be written.
    """
    draw = _drawing() if set(formats) & set(DRAWN) else {}
    files = []
    try:
        make_folder(folder)
        for figure in figures:
            chart = printed(figure) if figure.chart is not None else None
            for name in formats:
                file = folder / f"{figure.name}.{name}"
                if name == "csv":
                    write_whole(file, csv_table(figure))
                elif name == "tex":
                    write_whole(file, latex_table(figure))
                elif chart is not None:
                    write_whole(file, draw[name](chart))
                else:
                    continue
                files.append(file)
    except OSError as error:
        raise RunError(
            f"The figures cannot be written to {folder}: {error.strerror or error}.",
            hint="Free some space or fix the permissions, or run tts report on a copy.",
        ) from error
    return files


def _drawing() -> dict[Format, Callable[[Spec], bytes]]:
    try:
        import vl_convert
    except ImportError as error:
        raise ConfigError(
            "Figures are drawn as files by vl-convert, which is not installed.",
            hint=f"Install it: {how_to_install('figures')}",
        ) from error
    return {
        "pdf": lambda chart: vl_convert.vegalite_to_pdf(chart, vl_version=_VEGA_LITE),
        "svg": lambda chart: vl_convert.vegalite_to_svg(chart, vl_version=_VEGA_LITE).encode(),
        "png": lambda chart: vl_convert.vegalite_to_png(chart, vl_version=_VEGA_LITE, ppi=PNG_DPI),
    }


def csv_table(figure: Figure) -> str:
    """The rows of a figure as CSV: all digits, no formula, and nothing for what is not known."""
    text = io.StringIO()
    writer = csv.DictWriter(text, figure.columns, restval="")
    writer.writeheader()
    writer.writerows({name: csv_cell(cell) for name, cell in row.items()} for row in figure.rows)
    return text.getvalue()


def latex_table(figure: Figure) -> str:
    """The rows of a figure as a LaTeX table with its title, in the style of booktabs."""
    columns = figure.columns
    numeric = [
        all(isinstance(row.get(name), int | float | None) for row in figure.rows)
        for name in columns
    ]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(figure.title)}}}",
        rf"\label{{tab:{figure.name}}}",
        rf"\begin{{tabular}}{{{''.join('r' if each else 'l' for each in numeric)}}}",
        r"\toprule",
        " & ".join(map(_latex, columns)) + r" \\",
        r"\midrule",
        *(" & ".join(_latex(row.get(name)) for name in columns) + r" \\" for row in figure.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{each: rf"\{each}" for each in "#$%&_"},
    }
)


def _latex(cell: Cell) -> str:
    if cell is None:
        return "--"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.5g}"
    return " ".join(str(cell).translate(_LATEX).split())


def printed(figure: Figure) -> Spec:
    """A figure's chart with its data, black on white, at a width of its own."""
    assert figure.chart is not None
    chart = {
        **figure.chart,
        "datasets": {DATA: [dict(row) for row in figure.rows]},
        "width": WIDTH,
        "config": {**chart_theme("black"), "background": "white"},
    }
    plain: Spec = _drawable(chart)
    return plain


def _drawable(value: Any) -> Any:
    """A chart in whose texts stands nothing that ends the program that draws it."""
    if isinstance(value, dict):
        return {_drawable(name): _drawable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_drawable(each) for each in value]
    return printable(value).translate(_LINE_ENDS) if isinstance(value, str) else value
