"""Cost per thought and memory over the number of problems and over n: a table and a plot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import altair as alt
from rich.table import Table

from .memory import Run, run

PROBLEMS = (10, 100, 1_000, 10_000)
SIZES = (4, 16, 64, 256, 1_024)
N = 16
CHAINS = 4_096
"""Of the runs that differ in n: n times problems."""


def points(most: int) -> list[tuple[str, int, int]]:
    """What is varied, problems, n; `most`: problems of the largest run."""
    by_problems = [("problems", count, N) for count in PROBLEMS if count <= most]
    return [*by_problems, *(("n", max(4, CHAINS // n), n) for n in SIZES)]


def measure(most: int) -> Iterator[tuple[str, Run]]:
    """Each point in a process of its own, smallest first."""
    for varied, problems, n in points(most):
        words = [sys.executable, "-m", "orchestrator_bench.scale", str(problems), str(n)]
        paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(words, env=variables, stdout=subprocess.PIPE, text=True, check=True)
        yield varied, Run(**json.loads(done.stdout))


def table(runs: list[tuple[str, Run]]) -> Table:
    """A row for each run."""
    rows = Table("varied", "problems", "n", "thoughts", "CPU us per thought", "peak MB", "log MB")
    for varied, each in runs:
        rows.add_row(
            varied,
            f"{each.problems:,}",
            f"{each.n:,}",
            f"{each.thoughts:,}",
            f"{1e6 * each.cpu_s / each.thoughts:.0f}",
            f"{each.peak_mb:.0f}",
            f"{each.log_mb:.0f}",
        )
    return rows


def plot(runs: list[tuple[str, Run]], file: Path) -> None:
    """Both measures over what is varied, as an SVG."""
    measures = {"CPU us per thought": _cost, "peak memory, MB": lambda each: each.peak_mb}
    rows = [
        {"varied": varied, "x": getattr(each, varied), "measure": name, "value": of(each)}
        for varied, each in runs
        for name, of in measures.items()
    ]
    panel = (
        alt.Chart()
        .mark_line(point=True)
        .encode(
            alt.X("x:Q").scale(type="log").title(None),
            alt.Y("value:Q").scale(domainMin=0).title(None),
        )
        .properties(width=260, height=140)
    )
    chart = alt.layer(panel, data=alt.Data(values=rows)).facet(
        column=alt.Column("varied:N").title(None), row=alt.Row("measure:N").title(None)
    )
    chart.resolve_scale(x="independent", y="independent").save(file)


def _cost(each: Run) -> float:
    return 1e6 * each.cpu_s / each.thoughts


if __name__ == "__main__":
    print(json.dumps(asdict(run(int(sys.argv[1]), int(sys.argv[2])))))
