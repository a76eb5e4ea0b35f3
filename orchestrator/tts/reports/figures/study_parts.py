"""What the figures of a study have in common."""

from __future__ import annotations

import altair as alt

from tts.lab.study.folder import Measurement, Row

from .charts import ALL_FIELDS, BLUE, PERCENT, chart, colour
from .figure import Figure, Spec

SHARE = "generator share"
SPEED = "throughput, times as deployed"


def figure_of(measured: Measurement, title: str, reading: str, drawn: Spec) -> Figure:
    """A measurement as a figure."""
    return Figure(
        measured.name, title, reading, measured.rows, drawn, measured.origin, measured.notes
    )


def share_axis() -> alt.X:
    """The division of the KV memory."""
    return alt.X(
        f"{SHARE}:Q",
        title="the generator's share of the KV memory",
        axis=PERCENT,
        scale=alt.Scale(domain=[0, 1]),
    )


def doubling_axis(field: str, title: str) -> alt.X:
    """A count that is measured at powers of two."""
    scale = alt.Scale(type="log", base=2, nice=False, padding=15)
    return alt.X(f"{field}:Q", title=title, scale=scale)


def engine_colour(engines: list[str]) -> alt.Color:
    """A colour for each engine, with a legend above the chart."""
    legend = alt.Legend(orient="top")
    return alt.Color("engine:N", title=None, scale=colour(engines), legend=legend)


def speeds_over(x: alt.X) -> alt.LayerChart | alt.FacetChart:
    """Throughput over that of the base, with its intervals."""
    y = alt.Y("speed:Q", title=SPEED, scale=alt.Scale(zero=False))
    return alt.layer(
        chart().mark_rule(opacity=0.5).encode(x=x, y=alt.Y("low:Q", title=SPEED), y2="high:Q"),
        chart().mark_line(color=BLUE).encode(x=x, y=y),
        chart().mark_point(filled=True, size=70, color=BLUE, tooltip=ALL_FIELDS).encode(x=x, y=y),
    )


def value(row: Row, name: str) -> float:
    """A number of a row."""
    found = row[name]
    assert isinstance(found, int | float), f"{name} is {found!r}"
    return found


def distinct(measured: Measurement, name: str) -> list[str]:
    """The texts in a column, each once, in their order."""
    return list(dict.fromkeys(str(row[name]) for row in measured.rows))


def is_certain(row: Row) -> bool:
    """Whether the interval of a row's speed leaves out 1."""
    low, high = row["low"], row["high"]
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return False
    return not low <= 1 <= high


def times(row: Row) -> str:
    """A row's speed in words."""
    if row["low"] is None:
        return f"{value(row, 'speed'):.2f} times as fast"
    low, high = value(row, "low"), value(row, "high")
    return f"{value(row, 'speed'):.2f} times as fast ({low:.2f} to {high:.2f})"
