r"""Results of bench.budgets on several pairs of models: one table, and a figure as an SVG.

    scripts/run bench.compare_budgets demo=DIR remainders=DIR noisy=DIR --of auto \
        --strategy auto mcts rebase weighted-best-of-n --plot docs/images/accuracy-over-tokens.svg

DIR is an --out of bench.budgets; `demo=DIR+DIR` joins two, on the same problems. Each row is a pair
at a budget; it ends with the difference of --of to the best of the others, which is chosen after
the fact: the largest of several chance results, so a tie looks like a small loss. Differences are
paired, on the seeds that both have; brackets hold 95% intervals.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import altair as alt

from scripts.bench.budgets.records import Records
from scripts.bench.budgets.table import Row, as_markdown, difference, rows_of

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999")
"""Okabe and Ito's, which colour-blind readers can tell apart."""

Rows = Mapping[tuple[str, int], Row]
"""By strategy and budget."""


def read(folders: str) -> Rows:
    """What the folders of one pair hold; of a strategy at a budget the first that has it."""
    found: dict[tuple[str, int], Row] = {}
    for folder in folders.split("+"):
        for row in rows_of(Records(Path(folder) / "results.jsonl")):
            found.setdefault((row.fit.strategy, row.fit.budget), row)
    return found


def table(pairs: Mapping[str, Rows], strategies: Sequence[str], of: str) -> str:
    """Accuracy of the strategies, a row for each pair and budget; the best is in bold."""
    headings = ["pair", "budget", *strategies, f"{of}: tokens", f"{of} - best other"]
    lines = []
    for pair, rows in pairs.items():
        for budget in sorted({budget for _, budget in rows}):
            here = {name: rows[name, budget] for name in strategies if (name, budget) in rows}
            most = max((row.accuracy for row in here.values()), default=0.0)
            cells = [_accuracy(here.get(name), most) for name in strategies]
            lines.append([pair, f"{budget:,}", *cells, *_compared(here, of)])
    return as_markdown(headings, lines)


def _accuracy(row: Row | None, most: float) -> str:
    if row is None:
        return ""
    text = f"{100 * row.accuracy:.1f}%"
    return f"**{text}**" if row.accuracy == most else text


def _compared(rows: Mapping[str, Row], of: str) -> tuple[str, str]:
    others = {name: row for name, row in rows.items() if name != of}
    if of not in rows or not others:
        return "", ""
    best = max(others, key=lambda name: others[name].accuracy)
    over = difference(rows[of], others[best])
    return f"{rows[of].tokens:,.0f}", f"{over} ({best})" if over else ""


def plot(pairs: Mapping[str, Rows], strategies: Sequence[str], of: str, file: Path) -> None:
    """Accuracy over the tokens that were taken: a panel for each pair, a line for each strategy."""
    panels = [_panel(pair, rows, strategies, of) for pair, rows in pairs.items()]
    drawn = alt.hconcat(*panels, spacing=24, background="white", padding=12)
    drawn.configure_view(stroke=None).configure_axis(
        labelFontSize=12, titleFontSize=12, titleFontWeight="normal", domainColor="#888"
    ).configure_legend(labelFontSize=12, symbolStrokeWidth=3).save(file)


def _panel(pair: str, rows: Rows, strategies: Sequence[str], of: str) -> alt.Chart:
    points = [
        {
            "strategy": name,
            "tokens": row.tokens,
            "accuracy": 100 * row.accuracy,
            "width": 3 if name == of else 1.5,
        }
        for (name, _), row in rows.items()
        if name in strategies
    ]
    colour = alt.Color(
        "strategy:N",
        title=None,
        sort=list(strategies),
        scale=alt.Scale(domain=list(strategies), range=list(COLOURS[: len(strategies)])),
    )
    ticks = alt.Axis(values=sorted({budget for _, budget in rows}), format=",d", grid=False)
    wide = alt.Scale(domain=[1.5, 3], range=[1.5, 3.5])
    panel: alt.Chart = (
        alt.Chart(alt.InlineData(points), title=pair)
        .mark_line(point=True)
        .encode(
            alt.X(
                "tokens:Q",
                title="tokens per problem",
                axis=ticks,
                scale=alt.Scale(type="log", nice=False),
            ),
            alt.Y("accuracy:Q", title="accuracy, %", scale=alt.Scale(zero=False)),
            colour,
            alt.StrokeWidth("width:Q", legend=None, scale=wide),
        )
        .properties(width=230, height=230)
    )
    return panel


def main() -> None:
    """Print the table and write the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", nargs="+", metavar="PAIR=DIR[+DIR]")
    parser.add_argument("--strategy", nargs="+", required=True)
    parser.add_argument("--of", default="auto", help="the strategy that is compared")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    args = parser.parse_args()
    pairs = {name: read(folders) for name, _, folders in (arg.partition("=") for arg in args.pairs)}
    print(table(pairs, args.strategy, args.of), end="")
    if args.plot:
        plot(pairs, args.strategy, args.of, args.plot)


if __name__ == "__main__":
    main()
