"""Answers in code: the one that most samples agree on, beside the one whose tests pass.

    pip install '.[cpu]'
    python examples/code_with_tests.py        # needs bubblewrap: apt-get install bubblewrap

The "model" is a function that writes one of a few drafts, more often the wrong one, so this runs
anywhere in seconds; give `Session.open` a deployment file of yours for a real one. The verifier is
a program, run_tests.py, and what it executes sees neither this machine's files nor its network. The
right answers are counted by the same tests, so the second line is as good as the samples are: with
tests that are not shown, in other fields of `extra`, it is a measurement.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from tts import Session
from tts.build.spec import ExecutionSpec, VerifierCommand, load_deployment
from tts.datasets.load import load_problems

HERE = Path(__file__).resolve().parent
DRAFTS = {
    "second_largest": ("sorted(numbers)[-2]", "sorted(set(numbers))[-2]"),
    "vowels": ("sum(c in 'aeiou' for c in text)", "sum(c in 'aeiou' for c in text.lower())"),
    "rotate": ("items[n:] + items[:n]", "items[n % len(items):] + items[:n % len(items)]"),
}
"""The wrong draft and the right one."""


def write(prompt: str, seed: int) -> str:
    """A "model": one of the drafts for the function that the prompt asks for."""
    name = next(name for name in DRAFTS if f"{name}(" in prompt)
    parameters = prompt.partition(f"{name}(")[2].partition(")")[0]
    wrong, right = DRAFTS[name]
    draft = right if random.Random(seed).random() < 0.3 else wrong
    return f"Here it is.\n\n```python\ndef {name}({parameters}):\n    return {draft}\n```"


def main() -> None:
    """Solve the problems with both, and print how many are right."""
    parser = argparse.ArgumentParser(description="Code, by vote and by running tests.")
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--sandbox", default="bubblewrap", help="see docs/explanation/security.md")
    given = parser.parse_args()
    demo = load_deployment("demo")
    deployment = demo.model_copy(
        update={
            "generator": demo.generator.model_copy(update={"max_seq_len": 4096}),
            "verifier": VerifierCommand(command=("python", str(HERE / "run_tests.py"))),
            "execution": ExecutionSpec(sandbox=given.sandbox),
        }
    )
    problems = load_problems(str(HERE / "code_problems.jsonl"))
    with Session.open(deployment, generator=write) as session:
        for strategy in ("majority-vote", "best-of-n"):
            results = list(session.solve_many(problems, strategy=strategy, n=given.n))
            right = sum(bool(result.correct) for result in results)
            print(f"{strategy:14} {right} of {len(results)} right")
    print(
        f"\n{problems[0].question}\n\n{next(r.answer for r in results if r.problem == problems[0])}"
    )


if __name__ == "__main__":
    main()
