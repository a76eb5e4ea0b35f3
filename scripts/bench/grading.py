"""Seconds to group n distinct answers of one problem, on warm workers.

The worst case of a vote: no two answers are equal, so each is told apart from all before it.

    scripts/run bench.grading                           # generated expressions, n = 64 and 256
    scripts/run bench.grading --answers math500.jsonl   # real ones: the field `answer` of each
    scripts/run bench.grading --answers FILE --field prediction --n 32 --workers 1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from itertools import cycle, islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tts.grading import Grader, canonical, group_answers, is_integer

SHAPES = (
    r"\frac{{{0}}}{{{1}}}",
    r"{0}\sqrt{{{1}}}",
    r"x^2+{0}x+{1}",
    r"({0},{1})",
    r"\frac{{{0}+\sqrt{{{1}}}}}{{{2}}}",
    r"{0}\pi-{1}",
    r"\left[{0},{1}\right)",
    r"y={0}x+{1}",
    r"\begin{{pmatrix}}{0}\\{1}\end{{pmatrix}}",
    r"e^{{{0}}}\sin({1}x)",
)
PRIMES = [p for p in range(2, 400) if all(p % d for d in range(2, p))]


def main() -> None:
    """Group each number of answers and print a row for it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--answers", type=Path, metavar="JSONL", help="take answers from here")
    parser.add_argument("--field", default="answer", help="which field has the answer")
    parser.add_argument("--n", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--workers", type=int, help="default: one per core, four at most")
    arguments = parser.parse_args()
    answers = generated(max(arguments.n))
    if arguments.answers:
        answers = distinct(arguments.answers, arguments.field, max(arguments.n))
    table = Table(
        "n", "groups", "undecided", "reading, s", "comparing, s", "together, s", "CPU of workers, s"
    )
    for n in arguments.n:
        table.add_row(*asyncio.run(row(answers[:n], arguments.workers)))
    Console().print(table)


def distinct(file: Path, field: str, n: int) -> list[str]:
    """Answers of different form from a file, the integers last: they cost least."""
    texts = [json.loads(line).get(field) for line in file.read_text("utf-8").splitlines()]
    forms = {canonical(text): text for text in texts if text}
    answers = sorted(forms.values(), key=lambda text: is_integer(canonical(text)))
    missing = n - len(answers)
    return answers + [text for text in generated(n) if canonical(text) not in forms][:missing]


def generated(n: int) -> list[str]:
    """Distinct answers as they occur in MATH; the same in every run."""
    draw = random.Random(0)
    shapes = (
        shape.format(*sorted(draw.sample(PRIMES, 3))) for shape in islice(cycle(SHAPES), 4 * n)
    )
    return list(islice(dict.fromkeys(shapes), n))


async def row(answers: list[str], workers: int | None) -> list[str]:
    """Group the answers of a problem that no worker has seen yet."""
    async with Grader(workers=workers, problem_cpu_s=1e6) as grader:
        warm = (grader.equal(rf"\frac{{{n}}}{{7}}", "x") for n in range(1, 33))
        await asyncio.gather(*warm)
        problem = grader.problem()

        began = time.perf_counter()
        await problem.read(answers)
        read_s = time.perf_counter() - began
        groups = await group_answers(answers, problem)
        seconds = time.perf_counter() - began
        cpu_s = problem.spent_s
        again = [await problem.equal(answer, answers[0]) for answer in answers]
        undecided = sum(verdict.undecided for verdict in again)
    times = (read_s, seconds - read_s, seconds, cpu_s)
    return [str(len(answers)), str(max(groups) + 1), str(undecided), *(f"{t:.2f}" for t in times)]


if __name__ == "__main__":
    main()
