"""A sweep over n: accuracy against generated tokens for two strategies, as a table and a figure.

    pip install '.[cpu,figures]' && tts build-engines demo
    python examples/sweep.py --problems 100 --figure sweep.svg

The figure is a Vega-Lite chart by Altair, which is in the extra `figures`. `tts report
RUN RUN...` draws such figures from run folders.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import altair as alt

from tts import Session
from tts.datasets.load import load_problems

STRATEGIES = {"majority vote": "majority-vote", "DVTS": "dvts"}


def figure(rows: list[dict[str, object]]) -> alt.Chart:
    """Accuracy over tokens on a logarithmic axis, a line for each strategy."""
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows), width=420, height=280)
        .mark_line(point=True)
        .encode(
            x=alt.X("tokens:Q", title="generated tokens per problem", scale=alt.Scale(type="log")),
            y=alt.Y("accuracy:Q", axis=alt.Axis(format="%"), scale=alt.Scale(zero=False)),
            color=alt.Color("strategy:N"),
            tooltip=["strategy:N", "n:Q", "accuracy:Q", "tokens:Q"],
        )
    )
    return chart


def main() -> None:
    """Solve the same problems with each strategy and n, then save the figure."""
    parser = argparse.ArgumentParser(description="Accuracy over tokens for n = 1 to 16.")
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--most", type=int, default=16, help="the largest n, a power of two")
    parser.add_argument("--figure", type=Path, default=Path("sweep.html"))
    given = parser.parse_args()
    problems = load_problems("demo", limit=given.problems)
    rows: list[dict[str, object]] = []
    print("strategy         n  accuracy  tokens per problem")
    with Session.open("demo", server="embedded") as session:
        for name, strategy in STRATEGIES.items():
            n = 1
            while n <= given.most:
                width = {"beam_width": min(n, 4)} if strategy == "dvts" else {}
                results = list(
                    session.solve_many(problems, strategy=strategy, n=n, parameters=width)
                )
                accuracy = sum(result.correct is True for result in results) / len(results)
                tokens = sum(result.usage.generated_tokens for result in results) / len(results)
                rows.append({"strategy": name, "n": n, "accuracy": accuracy, "tokens": tokens})
                print(f"{name:14} {n:3}  {accuracy:8.1%}  {tokens:18.0f}")
                n *= 2
    figure(rows).save(given.figure)
    print(f"saved {given.figure}")


if __name__ == "__main__":
    main()
