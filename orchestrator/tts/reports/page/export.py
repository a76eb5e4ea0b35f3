"""Figures as files for papers: PDF, SVG and PNG, drawn without a browser (extra `figures`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from tts.build.errors import ConfigError, RunError
from tts.build.extras import how_to_install
from tts.reports.figures.figure import DATA, Figure, Spec
from tts.runs.durable import make_folder

from .assets import chart_theme

Format = Literal["pdf", "svg", "png"]
WIDTH = 480
"""The width in points of a chart that is as wide as its page."""
PNG_SCALE = 3
"""Pixels for each point."""
_VEGA_LITE = "6.4"
"""Nearest to the version that pages are drawn with."""


def export_figures(
    figures: Sequence[Figure], folder: Path, formats: Sequence[Format]
) -> list[Path]:
    """Write each figure that has a chart to `folder`, in every format; the files.

    Raises ConfigError where the package that draws them is not installed, RunError where nothing
    can be written.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise ConfigError(
            "Figures are drawn as files by vl-convert, which is not installed.",
            hint=f"Install it: {how_to_install('figures')}",
        ) from error
    draw: dict[Format, Callable[[Spec], bytes]] = {
        "pdf": lambda chart: vl_convert.vegalite_to_pdf(chart, vl_version=_VEGA_LITE),
        "svg": lambda chart: vl_convert.vegalite_to_svg(chart, vl_version=_VEGA_LITE).encode(),
        "png": lambda chart: vl_convert.vegalite_to_png(
            chart, vl_version=_VEGA_LITE, scale=PNG_SCALE
        ),
    }
    files = []
    try:
        make_folder(folder)
        for figure in figures:
            if figure.chart is None:
                continue
            chart = printed(figure)
            for name in formats:
                file = folder / f"{figure.name}.{name}"
                file.write_bytes(draw[name](chart))
                files.append(file)
    except OSError as error:
        raise RunError(
            f"The figures cannot be written to {folder}: {error.strerror or error}.",
            hint="Free some space or fix the permissions, or run tts report on a copy.",
        ) from error
    return files


def printed(figure: Figure) -> Spec:
    """A figure's chart with its data, black on white, at a width of its own."""
    assert figure.chart is not None
    chart = {**figure.chart, "datasets": {DATA: [dict(row) for row in figure.rows]}}
    if chart.get("width") == "container":
        chart["width"] = WIDTH
    theme = {**chart_theme("black"), "background": "white"}
    chart["config"] = _merged(theme, figure.chart.get("config", {}))
    return chart


def _merged(config: Spec, other: Spec) -> Spec:
    merged = {**config}
    for name, value in other.items():
        inner = merged.get(name)
        if isinstance(inner, dict) and isinstance(value, dict):
            merged[name] = {**inner, **value}
        else:
            merged[name] = value
    return merged
