"""Word problems of one to three operations, drawn by a seed: a dataset for small real models.

`scripts/run word_problems --count 200 --out words.jsonl` writes them as a dataset file
(docs/reference/datasets.md). A level is a number of operations; every value is a whole number from
2 to 99.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Nora", "Oscar")
THINGS = ("apples", "books", "marbles", "stickers", "coins", "cards", "pencils", "shells")
LEAST, MOST = 2, 99


@dataclass(frozen=True)
class Turn:
    """A sentence with `{name}`, `{things}` and `{k}`, and what it does to how many there are."""

    sentence: str
    apply: Callable[[int, int], int]


TURNS = (
    Turn("{name} buys {k} more {things}.", lambda a, k: a + k),
    Turn("A friend gives {name} {k} {things}.", lambda a, k: a + k),
    Turn("{name} gives away {k} of the {things}.", lambda a, k: a - k),
    Turn("{name} loses {k} of the {things}.", lambda a, k: a - k),
    Turn("Then the number of {things} becomes {k} times as large.", lambda a, k: a * k),
)


@dataclass(frozen=True)
class WordProblem:
    """A question, its answer, and how many operations lead there."""

    question: str
    answer: int
    operations: int


def word_problems(seed: int) -> Iterator[WordProblem]:
    """Endless word problems, no question twice; one, two and three operations take turns."""
    drawn, seen, number = random.Random(seed), set[str](), 0
    while True:
        problem = _draw(drawn, 1 + number % 3)
        if problem.question not in seen:
            seen.add(problem.question)
            number += 1
            yield problem


def _draw(drawn: random.Random, operations: int) -> WordProblem:
    name, things = drawn.choice(NAMES), drawn.choice(THINGS)
    value = drawn.randint(LEAST, 40)
    sentences = [f"{name} has {value} {things}."]
    while len(sentences) <= operations:
        turn, k = drawn.choice(TURNS), drawn.randint(2, 12)
        after = turn.apply(value, k)
        if LEAST <= after <= MOST:
            value = after
            sentences.append(turn.sentence.format(name=name, things=things, k=k))
    sentences.append(f"How many {things} does {name} have now?")
    return WordProblem(" ".join(sentences), value, operations)


def rows(count: int, seed: int) -> Iterator[str]:
    """The lines of a dataset file."""
    for number, problem in zip(range(1, count + 1), word_problems(seed), strict=False):
        yield json.dumps(
            {
                "id": f"words-{seed}-{number}",
                "problem": problem.question,
                "answer": str(problem.answer),
                "level": problem.operations,
            }
        )


def main() -> None:
    """Write as many problems as the command line asks for."""
    parser = argparse.ArgumentParser(prog="word_problems", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    asked = parser.parse_args()
    asked.out.write_text("".join(f"{row}\n" for row in rows(asked.count, asked.seed)))
    print(f"{asked.out}: {asked.count} problems")


if __name__ == "__main__":
    main()
