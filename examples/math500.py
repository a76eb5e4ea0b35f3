"""MATH-500 with a run folder: accuracy by level, continued by the same command.

    tts doctor mine.yaml
    python examples/math500.py mine.yaml --limit 50 --out runs/math500

MINE.YAML names your models (docs/start/your-own-models.md). The data set is downloaded once; a
JSONL file with `problem`, `answer` and `level` may be named instead. The bundled demo pair knows
whole-number arithmetic only and solves none of these problems.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from tts import Result, Run, Session
from tts.datasets.load import load_problems


def report(results: list[Result]) -> None:
    """Accuracy by level, and how many problems had to be left out."""
    levels: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        levels[str(result.problem.level)].append(result)
    print("\nlevel  problems  right  accuracy")
    for level, members in sorted(levels.items()):
        right = sum(result.correct is True for result in members)
        print(f"{level:5}  {len(members):8}  {right:5}  {right / len(members):8.1%}")
    if skipped := sum(result.error is not None for result in results):
        print(f"{skipped} too long for the deployment's max_seq_len, counted as wrong")


def main() -> None:
    """Solve the problems, or those that an interrupted run has left, and print the table."""
    parser = argparse.ArgumentParser(description="Accuracy on MATH-500 by level.")
    parser.add_argument("deployment", help="a bundled name or a YAML file")
    parser.add_argument("--dataset", default="math-500", help="a data set's name or a file")
    parser.add_argument("--limit", type=int, help="problems; default: all")
    parser.add_argument("--strategy", default="beam-search")
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--server", choices=("triton", "embedded"))
    parser.add_argument("--out", type=Path, default=Path("runs/math500"))
    given = parser.parse_args()
    problems = load_problems(given.dataset, limit=given.limit)
    results = []
    with Session.open(given.deployment, server=given.server, say=print) as session:
        for result in session.solve_many(
            problems,
            strategy=given.strategy,
            n=given.n,
            out=given.out,
            resume=(given.out / "run.json").exists(),
            skip_overlong=True,
        ):
            mark = {True: "right", False: "wrong", None: "?"}[result.correct]
            print(f"{result.problem.id:32} {mark:5}  {result.answer}  ({result.problem.answer})")
            results.append(result)
    report(results)
    summary = Run.load(given.out).summary
    if summary:
        print(f"accuracy {summary.accuracy:.1%} by the {summary.vote} vote; tts report {given.out}")


if __name__ == "__main__":
    main()
