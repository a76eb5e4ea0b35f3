"""Shared by all charts: colours, width, and the limit of rows.

Charts say nothing of text colours, fonts or backgrounds: the page that shows them does, for light
and for dark. Colours of marks are those of Okabe and Ito (2008), which colour-blind readers can
distinguish, except black and yellow, which are lost on one of the two backgrounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import altair as alt

from .figure import DATA, Spec, TableRow

BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, SKY, ORANGE = "#CC79A7", "#56B4E9", "#E69F00"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, SKY, ORANGE)
MOST_ROWS = 300
"""Rows of a figure, at most: more are thinned."""

TAIL = 20
"""Values from which the 95th percentile is not simply the largest."""

LONG_NAMES = alt.Axis(labelLimit=260)
"""The axis of lines that are named: pixels of a name."""
_LEGEND_WIDTH = 84
"""Characters in a line of a legend."""

PERCENT = alt.Axis(format=".0%")
LOGARITHMIC = alt.Axis(format=",~r", tickCount=5, labelOverlap=True)
"""Labels for any range: by default Vega writes none in 908 to 932, and too many in 0.1 to 0.4."""
ALL_FIELDS = alt.TooltipContent("data")
"""A tooltip with every column of the row."""

Item = TypeVar("Item")


def chart() -> alt.Chart:
    """A chart of its figure's rows."""
    return alt.Chart(alt.NamedData(DATA))


def spec(drawn: alt.Chart | alt.LayerChart | alt.FacetChart, height: int | None = None) -> Spec:
    """A chart as data, as wide as the page lets it be; altair checks it against the schema."""
    sized = drawn.properties(width="container")
    if height is not None:
        sized = sized.properties(height=height)
    found: Spec = sized.to_dict()
    found.pop("config", None)  # altair's theme: the page has its own
    return found


def colour(names: Sequence[str], among: Sequence[str] = ()) -> alt.Scale:
    """The colours of these names, in their order; they begin anew after the sixth.

    Where all names that there can be are given, `among`, each has its colour in every run.
    """
    order = list(dict.fromkeys([*among, *names]))
    return alt.Scale(
        domain=list(names), range=[COLOURS[order.index(name) % len(COLOURS)] for name in names]
    )


def tint(column: str, names: Sequence[str], among: Sequence[str] = ()) -> alt.Color:
    """A column's colours (`colour`), with a legend above the chart."""
    return alt.Color(f"{column}:N", title=None, scale=colour(names, among), legend=legend(names))


def legend(names: Sequence[str]) -> alt.Legend:
    """A legend above the chart, in which no name is cut: as many beside another as have room."""
    longest = max(map(len, names), default=1)
    columns = max(1, min(len(names), _LEGEND_WIDTH // (longest + 5)))
    return alt.Legend(orient="top", columns=columns, labelLimit=0)


def intervals(column: str, y: alt.Y, x: Callable[[str], alt.X]) -> tuple[alt.Chart, alt.Chart]:
    """Dots of a column at lines `y`, on bars from columns `low` to `high`; `x` gives the axis."""
    bars = chart().mark_bar(height=8, opacity=0.4, color=BLUE)
    dots = chart().mark_point(filled=True, size=70, color=BLUE, tooltip=ALL_FIELDS)
    return (
        bars.encode(x=x("low:Q"), x2="high:Q", y=y),
        dots.encode(x=x(f"{column}:Q"), y=y),
    )


def bars_height(count: int) -> int:
    """The height of horizontal bars, or of other marks with a line each."""
    return 24 * max(count, 2)


def thinned(items: Sequence[Item], most: int = MOST_ROWS) -> list[Item]:
    """At most this many of the items, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / (most - 1)
    return [items[round(place * step)] for place in range(most)]


def histogram(values: Sequence[float], bins: int) -> list[tuple[float, float, int]]:
    """(low, high, count) of equal bins from the least to the greatest value; none without values.

    Where all values are equal there is one bin, of no width.
    """
    if not values:
        return []
    low, high = min(values), max(values)
    if low == high:
        return [(low, high, len(values))]
    width = (high - low) / bins
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) / width), bins - 1)] += 1
    return [
        (low + place * width, low + (place + 1) * width, count)
        for place, count in enumerate(counts)
    ]


def histogram_rows(parts: Sequence[tuple[float, float, int]], unit: str) -> list[TableRow]:
    """A row for each bin: `from UNIT`, `to UNIT`, `count`."""
    return [
        {f"from {unit}": round(low, 4), f"to {unit}": round(high, 4), "count": count}
        for low, high, count in parts
    ]


def histogram_spec(unit: str, title: str, counted: str, *, logarithmic: bool = False) -> Spec:
    """The bars of `histogram_rows`."""
    scale = alt.Scale(type="log") if logarithmic else alt.Scale(zero=False, nice=False)
    return spec(
        chart()
        .mark_bar(color=BLUE, tooltip=ALL_FIELDS)
        .encode(
            x=alt.X(f"from {unit}:Q", bin="binned", title=title, scale=scale),
            x2=f"to {unit}:Q",
            y=alt.Y("count:Q", title=counted),
        ),
        200,
    )


def percent(share: float | None) -> str:
    """`82.5%`, or a dash."""
    return "–" if share is None else f"{100 * share:.1f}%"


def above(count: int, quantile: Callable[[float], float | None]) -> str:
    """Where so many values end: beyond which 5% lie, or the largest of a few."""
    share, words = (0.95, "at most 5% more than") if count >= TAIL else (1.0, "none more than")
    return f"{words} {number(quantile(share) or 0)}"


def number(value: float, digits: int = 3) -> str:
    """A number for a sentence: so many significant digits, thousands separated."""
    if value == 0 or abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}"
