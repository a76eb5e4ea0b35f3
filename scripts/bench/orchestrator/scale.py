"""Cost per thought and memory over the number of problems and over n: a table and a plot."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import altair as alt
from rich.table import Table

from scripts.programs import ROOT
from tts.reports.figures.charts import BLUE, VERMILLION

from .memory import Run, run

PROBLEMS = (10, 100, 1_000, 10_000)
SIZES = (4, 16, 64, 256, 1_024)
N = 16
CHAINS = 4_096
"""n times problems, in the runs that differ in n."""
LONG = 5_000
"""A run of so many problems is measured in the first round only."""
AIM = 1.2

Point = tuple[str, int, int]
"""What is varied, problems, n."""


def points(most: int) -> list[Point]:
    """What is measured; `most`: problems of the largest run."""
    by_problems = [("problems", count, N) for count in PROBLEMS if count <= most]
    return [*by_problems, *(("n", CHAINS // n, n) for n in SIZES)]


def measure(most: int, rounds: int) -> Iterator[tuple[Point, Run]]:
    """Each point in a process of its own, every other round in reverse."""
    for number in range(rounds):
        for point in points(most)[:: -1 if number % 2 else 1]:
            _, problems, n = point
            if number == 0 or problems < LONG:
                yield point, _in_process(problems, n)


def best(runs: list[tuple[Point, Run]]) -> dict[Point, Run]:
    """The least that any run of a point took, each measure by itself."""
    by_point: dict[Point, list[Run]] = {}
    for point, each in runs:
        by_point.setdefault(point, []).append(each)
    return {
        point: replace(
            of_point[0],
            cpu_s=min(each.cpu_s for each in of_point),
            instructions=min(each.instructions or 0 for each in of_point) or None,
            peak_mb=min(each.peak_mb for each in of_point),
        )
        for point, of_point in by_point.items()
    }


def table(runs: dict[Point, Run]) -> Table:
    """A row for each point."""
    rows = Table(
        *("varied", "problems", "n", "thoughts", "CPU us per thought"),
        *("1,000 instructions", "peak MB", "log MB"),
    )
    for (varied, problems, n), each in sorted(runs.items(), key=lambda item: item[0][0] == "n"):
        executed = each.instructions
        rows.add_row(
            varied,
            f"{problems:,}",
            f"{n:,}",
            f"{each.thoughts:,}",
            f"{cost_us(each):.0f}",
            "–" if executed is None else f"{executed / each.thoughts / 1e3:.0f}",
            f"{each.peak_mb:.0f}",
            f"{each.log_mb:.1f}",
        )
    return rows


def spread(runs: dict[Point, Run]) -> str:
    """The largest cost and memory over the smallest."""
    costs = [cost_us(each) for each in runs.values()]
    peaks = [each.peak_mb for each in runs.values()]
    return (
        f"Largest over smallest: CPU per thought {max(costs) / min(costs):.2f}, "
        f"peak memory {max(peaks) / min(peaks):.2f}; aim {AIM} or less."
    )


def plot(runs: dict[Point, Run], file: Path) -> None:
    """Both measures over what is varied, with the aim as a band, as an SVG."""
    measures = {
        "CPU per thought, µs": ({point: cost_us(each) for point, each in runs.items()}, BLUE),
        "peak memory, MB": ({point: each.peak_mb for point, each in runs.items()}, VERMILLION),
    }
    titles = {"problems": f"problems, at n={N}", "n": f"n, at {CHAINS:,} / n problems"}
    rows = [
        alt.hconcat(
            *(_panel(values, varied, titles[varied], name, colour) for varied in titles),
            spacing=30,
        )
        for name, (values, colour) in measures.items()
    ]
    drawn = alt.vconcat(*rows, spacing=24, background="white", padding=12)
    drawn.configure_view(stroke=None).configure_axis(
        labelFontSize=12, titleFontSize=12, titleFontWeight="normal", domainColor="#888"
    ).save(file)


def _panel(
    values: dict[Point, float], varied: str, title: str, measure: str, colour: str
) -> alt.LayerChart | alt.FacetChart:
    """One measure over problems or n; the band goes from the least value of all to the aim."""
    of_panel = {
        (problems if varied == "problems" else n): value
        for (each, problems, n), value in values.items()
        if each == varied
    }
    low, top = min(values.values()), max(values.values())
    x_scale = alt.Scale(type="log", domain=[min(of_panel) / 1.5, max(of_panel) * 1.5])
    y_scale = alt.Scale(domain=[0, max(AIM * low, top) * 1.15], nice=False)
    ticks = alt.Axis(values=[float(x) for x in sorted(of_panel)], format=",d", grid=False)
    drawn = alt.Chart(
        alt.InlineData([{"x": x, "value": round(value)} for x, value in of_panel.items()])
    ).encode(
        alt.X("x:Q", scale=x_scale, axis=ticks, title=title),
        alt.Y("value:Q", scale=y_scale, title=measure, axis=alt.Axis(tickCount=4)),
    )
    band = (
        alt.Chart(alt.InlineData([{"from": low, "to": AIM * low}]))
        .mark_rect(color=colour, opacity=0.12)
        .encode(alt.Y("from:Q", scale=y_scale, title=measure), alt.Y2("to:Q"))
    )
    points = alt.OverlayMarkDef(size=45, color=colour)
    return alt.layer(
        band,
        drawn.mark_line(color=colour, strokeWidth=2, point=points),
        drawn.mark_text(dy=-12, fontSize=12, color="#333").encode(alt.Text("value:Q")),
    ).properties(width=300, height=150)


def cost_us(each: Run) -> float:
    """Processor time per thought."""
    return 1e6 * each.cpu_s / each.thoughts


def _in_process(problems: int, n: int) -> Run:
    words = [sys.executable, "-m", "scripts.bench.orchestrator.scale", str(problems), str(n)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Run(**json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(run(int(sys.argv[1]), int(sys.argv[2])))))
