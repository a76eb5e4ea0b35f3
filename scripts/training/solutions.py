"""The worked solutions of chains (`tts.datasets.demo`): drawn for training, checked exactly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, Literal

from tts.datasets.demo import Chain, ChainTask, Op

StepForm = Literal["plain", "words", "terse"]
STEP_FORMS: Final[tuple[StepForm, ...]] = ("plain", "words", "terse")

STEP_DELIMITER: Final = "\n\n"
"""What stands between two steps of a solution."""

_TERSE: Final[dict[Op, str]] = {
    "+": "Adding {b} gives {c}",
    "-": "Subtracting {b} gives {c}",
    "*": "Multiplying by {b} gives {c}",
    "/": "Dividing by {b} gives {c}",
    "%": "Modulo {b} that is {c}",
}
_WORDS: Final[dict[Op, str]] = {
    "+": "Add {b} to {a}: {c}",
    "-": "Subtract {b} from {a}: {c}",
    "*": "Multiply {a} by {b}: {c}",
    "/": "Divide {a} by {b}: {c}",
    "%": "Reduce {a} modulo {b}: {c}",
}


def training_chain(task: ChainTask, rng: random.Random, operations: int) -> Chain:
    """A random chain of a task that is not held out."""
    while task.is_held_out((chain := task.sample_chain(rng, operations)).key):
        pass
    return chain


def render_step(number: int, op: Op, a: int, b: int, c: int, form: StepForm = "plain") -> str:
    """Step ``number`` (from 1), which says that ``a op b`` is ``c``."""
    if form == "words":
        body = _WORDS[op].format(a=a, b=b, c=c)
    elif form == "terse":
        body = _TERSE[op].format(b=b, c=c)
    else:
        body = f"{a} {op} {b} = {c}"
    return f"## Step {number}: {body}"


def worked(op: Op, a: int, b: int, c: int) -> str:
    """The operation ``a op b``, which is ``c``, in easier ones."""
    tens, ones = b - b % 10, b % 10
    if op in "+-" and tens and ones:
        first = a + tens if op == "+" else a - tens
        return f"{a} {op} {b}: {first} {op} {ones} = {c}"
    if op == "*" and max(a, b) > 10:
        large, small = max(a, b), min(a, b)
        return f"{a} {op} {b}: {large // 10 * 10 * small} + {large % 10 * small} = {c}"
    if op == "/":
        return f"{a} {op} {b}: {b} * {c} = {a}, {c}"
    return f"{a} {op} {b} = {c}"


def render_final(answer: int) -> str:
    """The closing sentence of a solution."""
    return f"Therefore, the final answer is: $\\boxed{{{answer}}}$. I hope it is correct."


def solution_steps(chain: Chain, forms: Sequence[StepForm] | None = None) -> tuple[str, ...]:
    """The worked solution; ``forms`` names the form of each operation's step (default plain)."""
    values = chain.values()
    steps = [
        render_step(i + 1, op, values[i], b, values[i + 1], forms[i] if forms else "plain")
        for i, (op, b) in enumerate(chain.ops)
    ]
    return (*steps, render_final(values[-1]))


def right_steps(chain: Chain, index: int) -> tuple[str, ...]:
    """All the right texts of step ``index`` (from 0), given that the steps before it are right."""
    values = chain.values()
    if index == len(chain.ops):
        return (render_final(values[-1]),)
    if index > len(chain.ops):
        return ()
    op, b = chain.ops[index]
    a, c = values[index], values[index + 1]
    return tuple(render_step(index + 1, op, a, b, c, form) for form in STEP_FORMS)


def first_wrong_step(chain: Chain, steps: Sequence[str]) -> int | None:
    """The index of the first step that is not a right one, or None: the exact verifier."""
    for index, step in enumerate(steps):
        if step.strip() not in right_steps(chain, index):
            return index
    return None
