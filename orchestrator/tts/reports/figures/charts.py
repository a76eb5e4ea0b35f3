"""Shared by all charts: their forms, colours, width, and the limit of rows.

Charts say nothing of text colours, fonts or backgrounds: the page that shows them does, for light
and for dark. Colours of marks are those of Okabe and Ito (2008), which colour-blind readers can
distinguish, except black and yellow, which are lost on one of the two backgrounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tts.runs.statistics import equal_bins, logarithmic_histogram, quantile

Cell = str | int | float | bool | None
TableRow = dict[str, Cell]
Spec = dict[str, Any]
"""A Vega-Lite specification, or a part of it: a mark, an encoding, an axis."""
Origin = Literal["measured", "modelled", "simulated"]
"""Measured in the run; the run's own requests put through a model of a part, such as a cache of
another size; or simulated engines."""

DATA = "rows"
"""The name by which a chart takes its figure's rows."""


@dataclass(frozen=True)
class Figure:
    """One figure.

    `name` is its anchor and file name (lower case, hyphens); `reading` says in a sentence or two
    what the reader sees, with the numbers that matter; `rows` are the table behind it, which is
    also its download; `chart` draws them, without data of its own. Without a chart it is a table.
    """

    name: str
    title: str
    reading: str
    rows: Sequence[TableRow]
    chart: Spec | None = None
    origin: Origin = "measured"
    notes: Sequence[str] = ()
    """What limits it: thinned data, engines that did not report, problems left out."""

    @property
    def columns(self) -> list[str]:
        """The names of all cells of its rows, in the order in which they first come."""
        return list(dict.fromkeys(name for row in self.rows for name in row))


BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, SKY, ORANGE = "#CC79A7", "#56B4E9", "#E69F00"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, SKY, ORANGE)
MOST_ROWS = 300
"""Rows of a figure, at most: more are thinned."""
MOST_NAMES = 4
"""Names in a title or a sentence; more are counted."""
_LEGEND_WIDTH = 84
"""Characters in a line of a legend."""

LONG_NAMES: Spec = {"labelLimit": 260}
"""The axis of lines that are named: pixels of a name."""
PERCENT: Spec = {"format": ".0%"}
ACCURACY: Spec = {
    "title": "accuracy",
    "axis": PERCENT,
    "scale": {"zero": False, "nice": False, "padding": 12},
}
"""The axis of accuracies that are compared, which need not begin at 0."""
ALL_FIELDS: Spec = {"content": "data"}
"""A tooltip with every column of the row."""
ON_TOP: Spec = {"orient": "top"}
"""A legend above the chart."""

_TICKS = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 4, 6, 8),
    (1, 1.2, 1.4, 1.7, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8),
)
"""Multiples of powers of ten at which a logarithmic axis may have its numbers."""
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")

Item = TypeVar("Item")
_TYPES = {"Q": "quantitative", "N": "nominal", "O": "ordinal"}
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.4.1.json"


def field(column: str, **details: Any) -> Spec:
    """An encoding by a column and its type, such as `seconds:Q`, with its scale, its title, ..."""
    name, _, kind = column.rpartition(":")
    return {"field": name, "type": _TYPES[kind], **details}


def mark(kind: str, properties: Spec, **encoding: Spec) -> Spec:
    """Marks of a kind, such as a bar, for the rows of a figure."""
    return {"mark": {"type": kind, **properties}, "encoding": encoding}


def layers(*pictures: Spec) -> Spec:
    """Pictures on one another."""
    return {"layer": list(pictures)}


def spec(picture: Spec, height: int) -> Spec:
    """A figure's chart, as wide as the page lets it be; tests check each against the schema."""
    frame = {"data": {"name": DATA}, "width": "container", "height": height}
    return {"$schema": _SCHEMA, **frame, **picture}


def bars_height(count: int) -> int:
    """The height of horizontal bars, or of other marks with a line each."""
    return 24 * max(count, 2)


def bars(x: Spec, y: str, sort: Sequence[str] | None, **encodings: Spec) -> Spec:
    """A horizontal bar for each name in the column `y`."""
    names = field(f"{y}:N", title=None, sort=sort and list(sort), axis=LONG_NAMES)
    return mark("bar", {"color": BLUE, "tooltip": ALL_FIELDS}, x=x, y=names, **encodings)


def doubling_axis(column: str, title: str) -> Spec:
    """A count that is measured at powers of two."""
    scale = {"type": "log", "base": 2, "nice": False, "padding": 15}
    axis = {"format": ",~r", "tickCount": 6}  # more are not at powers of two
    return field(f"{column}:Q", title=title, scale=scale, axis=axis)


def log_axis(values: Iterable[float], form: str = ",~r", padding: int = 15) -> Spec:
    """The scale and the axis of positive values: at least a factor of two, so that what is nearly
    equal looks so, and at least two numbers, where Vega by itself writes none in 908 to 932.
    """
    values = list(values)
    low, high = min(values), max(values)
    grow = math.sqrt(max(1.0, 2 * low / high))
    low, high = low / grow, high * grow
    powers = [
        10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    ]
    for multiples in _TICKS:
        ticks = [power * each for power in powers for each in multiples]
        ticks = [tick for tick in [*ticks, 10 * powers[-1]] if low <= tick <= high]
        if len(ticks) > 2:
            break
    return {
        "scale": {"type": "log", "nice": False, "padding": padding, "domain": [low, high]},
        "axis": {"format": form, "values": ticks, "labelOverlap": True},
    }


def intervals(column: str, y: Spec, **x: Any) -> Spec:
    """Dots of a column at lines `y`, on bars from columns `low` to `high`; `x` is its axis."""
    span = {"height": 8, "opacity": 0.4, "color": BLUE}
    dot = {"filled": True, "size": 70, "color": BLUE, "tooltip": ALL_FIELDS}
    return layers(
        mark("bar", span, x=field("low:Q", **x), x2={"field": "high"}, y=y),
        mark("point", dot, x=field(f"{column}:Q", **x), y=y),
    )


def measured(
    x: Spec,
    column: str,
    ends: tuple[str, str] = ("low", "high"),
    color: Spec | None = None,
    marks: Spec | None = None,
    lines: Spec | None = None,
    **y: Any,
) -> Spec:
    """A column over `x`: a line through points, each with its interval; `y` is the axis.

    `marks` are further encodings of the points, `lines` of the lines between them.
    """
    low, high = field(f"{ends[0]}:Q", **y), {"field": ends[1]}
    each: Spec = {"x": x, "color": color or {"value": BLUE}}
    at, dot = field(f"{column}:Q", **y), {"filled": True, "size": 70, "tooltip": ALL_FIELDS}
    return layers(
        mark("rule", {"opacity": 0.5}, **each, y=low, y2=high),
        mark("line", {"opacity": 0.7}, **each, y=at, **(lines or {})),
        mark("point", dot, **each, y=at, **(marks or {})),
    )


def colour(names: Sequence[str], among: Sequence[str] = ()) -> Spec:
    """The colours of these names, in their order; they begin anew after the sixth.

    Where all names that there can be are given, `among`, each has its colour in every run.
    """
    order = list(dict.fromkeys([*among, *names]))
    hues = [COLOURS[order.index(name) % len(COLOURS)] for name in names]
    return {"domain": list(names), "range": hues}


def tint(column: str, names: Sequence[str], among: Sequence[str] = ()) -> Spec:
    """A column's colours (`colour`), with a legend above the chart."""
    return field(f"{column}:N", title=None, scale=colour(names, among), legend=legend(names))


def legend(names: Sequence[str]) -> Spec:
    """A legend above the chart, in which no name is cut: as many beside another as have room."""
    longest = max(map(len, names), default=1)
    columns = max(1, min(len(names), _LEGEND_WIDTH // (longest + 5)))
    return {**ON_TOP, "columns": columns, "labelLimit": 0}


def thinned(items: Sequence[Item], most: int = MOST_ROWS) -> list[Item]:
    """At most this many of the items, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / (most - 1)
    return [items[round(place * step)] for place in range(most)]


def histogram(
    name: str,
    title: str,
    values: Sequence[float],
    unit: str,
    *,
    of: str,
    axis: str,
    note: str,
    logarithmic: bool = False,
) -> Figure | None:
    """How many `of` have which value, as bars; None without values."""
    parts = logarithmic_histogram(values, 30) if logarithmic else equal_bins(values, 25)
    if not parts:
        return None
    ends = [end for low, high, _ in parts for end in (low, high)]
    scale = log_axis(ends, padding=0) if logarithmic else {"scale": {"zero": False, "nice": False}}
    counts = mark(
        "bar",
        {"color": BLUE, "tooltip": ALL_FIELDS},
        x=field(f"from {unit}:Q", bin="binned", title=axis, **scale),
        x2={"field": f"to {unit}"},
        y=field("count:Q", title=of),
    )
    rows: list[TableRow] = [
        {f"from {unit}": round(low, 4), f"to {unit}": round(high, 4), "count": count}
        for low, high, count in parts
    ]
    reading = f"Of {len(values):,} {of}: {spread(values, unit)}."
    return Figure(name, title, reading, rows, spec(counts, 200), notes=[note])


def spread(values: Sequence[float], unit: str) -> str:
    """`40 s in the median, 45 in the mean, 90 at the 95th percentile, 120 at most`.

    A percentile is told where at least one value lies beyond it.
    """
    parts = [f"{number(quantile(values, 0.5) or 0)} {unit} in the median"]
    parts.append(f"{number(sum(values) / len(values))} in the mean")
    for part in (95, 99):
        if len(values) * (100 - part) >= 100:
            parts.append(f"{number(quantile(values, part / 100) or 0)} at the {part}th percentile")
    return ", ".join([*parts, f"{number(max(values))} at most"])


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b, c and 9 more`."""
    if len(names) > MOST_NAMES:
        names = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


def percent(share: float | None) -> str:
    """`82.5%`, or a dash."""
    return "–" if share is None else f"{100 * share:.1f}%"


def flops(value: float) -> str:
    """FLOPs with a prefix, such as `1.24 TFLOPs`."""
    powers = max(0, min((len(f"{value:.0f}") - 1) // 3, len(_PREFIXES) - 1))
    return f"{value / 1000**powers:.3g} {_PREFIXES[powers]}FLOPs"


def count_of(count: int, noun: str) -> str:
    """`1 problem`, `1,000 problems`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number(value: float, digits: int = 3) -> str:
    """A number for a sentence: so many significant digits, thousands separated."""
    if value == 0 or abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}"
