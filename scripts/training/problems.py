"""Write held-out problems of a pair as JSONL, for `--dataset`: none of them was trained on.

scripts/run training.problems --pair remainders --count 500 --seed 31 --out problems.jsonl
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from scripts.training.recipes import RECIPES, Recipe
from tts.datasets.chains import level_of


def lines(recipe: Recipe, count: int, seed: int) -> list[str]:
    """Problems with id, question, answer and level; a shorter list begins a longer one."""
    task = recipe.task
    return [
        json.dumps(
            {
                "id": f"{recipe.name}-{task.digest('id', chain.key):016x}",
                "question": task.question_of(chain),
                "answer": str(chain.answer),
                "level": level_of(len(chain.ops)),
            }
        )
        for chain in task.held_out_chains(count, seed)
    ]


def main() -> None:
    """Write the problems that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", choices=RECIPES, required=True)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    found = lines(RECIPES[args.pair], args.count, args.seed)
    args.out.write_text("\n".join(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
