"""A small pretrained pair whose verifier is a prompt: SmolLM2-135M adds, and checks its sums.

    scripts/fetch_smollm2
    scripts/run bench.prompted_pair DIR          # checkpoints, sums.yaml and sums.jsonl
    tts build-engines DIR/sums.yaml

So small a model solves few word problems, but about 40% of these sums if its chat template begins
with some: enough to compare strategies by.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tts.build.gguf.folder import checkpoint_folder
from tts.build.spec import GeneratorSpec, load_deployment

BUNDLED = "smollm2-135m-cpu"
EXAMPLES = ("4 + 7", "32 - 5", "23 + 18", "47 + 6", "36 - 14")
PROMPT = """You check sums. Answer Yes if the last line is right, and No if it is wrong.

What is 4 + 7?
4 + 7 = 11
Right? Yes

What is 32 - 5?
32 - 5 = 28
Right? No

What is 23 + 18?
23 + 18 = 41
Right? Yes

What is 36 - 14?
36 - 14 = 12
Right? No

{question}
{steps}
{step}
Right?
"""
LEVELS = (((2, 9), (2, 9)), ((11, 49), (2, 9)), ((11, 39), (11, 39)))
"""Ranges of the two numbers."""
TURNS = (0, 1, 2, 1, 2, 1, 2)
"""The levels of problems in turn; there are fewer than 100 of the first."""
MAX_TOKENS = 60
PROBLEMS = 500


def value_of(question: str) -> int:
    """What a sum such as `32 - 5` comes to."""
    first, sign, second = question.split()
    return int(first) + int(second) if sign == "+" else int(first) - int(second)


def sums(seed: int) -> Iterator[tuple[str, int]]:
    """Sums and their levels; no sum twice."""
    drawn, seen, number = random.Random(seed), set[str](), 0
    while number < PROBLEMS:
        level = TURNS[number % len(TURNS)]
        first, second = (drawn.randint(*numbers) for numbers in LEVELS[level])
        sign = drawn.choice("+-") if first > second else "+"
        question = f"{first} {sign} {second}"
        if question not in seen:
            seen.add(question)
            number += 1
            yield question, level + 1


def chat_template() -> str:
    """SmolLM2's, with examples in front."""
    turns = []
    for example in EXAMPLES:
        value = value_of(example)
        answer = f"{example} = {value}\n\nThe answer is \\boxed{{{value}}}."
        turns += [("user", f"What is {example}?"), ("assistant", answer)]
    said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return (
        f"{said}{{% for message in messages %}}<|im_start|>{{{{ message['role'] }}}}\n"
        "{{ message['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


def write_checkpoint(plain: Path, folder: Path) -> None:
    """The checkpoint with the other chat template."""
    shutil.copytree(plain, folder)
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "chat_template": chat_template()}, indent=1))
    (folder / "chat_template.jinja").unlink(missing_ok=True)


def deployment(plain: Path) -> dict[str, Any]:
    """The bundled one's engines, with this generator and this verifier."""
    data = load_deployment(BUNDLED).model_dump(mode="json", exclude_none=True)
    data["name"] = "sums"
    data["generator"]["checkpoint"] = "generator"
    data["verifier"] |= {
        "checkpoint": str(plain),
        "format": "prompted",
        "prompt_file": "prompt.txt",
    }
    strategies = ("auto", "majority-vote", "weighted-best-of-n", "beam-search", "rebase", "mcts")
    data["strategies"] = {name: {"max_tokens": MAX_TOKENS} for name in strategies}
    return data


def main() -> None:
    """Write everything into the folder that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--seed", type=int, default=2)
    asked = parser.parse_args()
    folder = asked.folder.absolute()
    folder.mkdir(parents=True)
    bundled = load_deployment(BUNDLED).generator
    assert isinstance(bundled, GeneratorSpec)
    plain = checkpoint_folder(bundled.checkpoint, print)
    write_checkpoint(plain, folder / "generator")
    (folder / "prompt.txt").write_text(PROMPT)
    (folder / "sums.yaml").write_text(yaml.safe_dump(deployment(plain), sort_keys=False))
    rows = (
        {
            "id": f"sums-{asked.seed}-{place}",
            "problem": f"What is {question}?",
            "answer": str(value_of(question)),
            "level": level,
        }
        for place, (question, level) in enumerate(sums(asked.seed), start=1)
    )
    (folder / "sums.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    print(f"{folder / 'sums.yaml'}: next, tts build-engines {folder / 'sums.yaml'}")


if __name__ == "__main__":
    main()
