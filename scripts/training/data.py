"""Training data, made on the fly: right solutions, wrong solutions, verifier dialogues."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tts.datasets import demo
from tts.datasets.demo import Chain, ChainTask, Op

from .solutions import (
    STEP_FORMS,
    first_wrong_step,
    render_final,
    render_step,
    right_steps,
    training_chain,
)
from .text import Codec, random_question, random_solution

IGNORE = -1
Row = tuple[list[int], list[bool]]
"""The ids of a text, and which of them a language model should learn to say."""


@dataclass(frozen=True)
class Trace:
    """A solution attempt: its step texts, and what each step should have said.

    ``expected[i]`` holds the right texts of step i in its local context, that is given the values
    written before it, right or not; None where there is no telling any more.
    """

    chain: Chain
    question: str
    steps: tuple[str, ...]
    expected: tuple[tuple[str, ...] | None, ...]

    def first_wrong(self) -> int:
        """The index of the first wrong step; the number of steps if all are right."""
        for i, (step, right) in enumerate(zip(self.steps, self.expected, strict=True)):
            if right is None or step not in right:
                return i
        return len(self.steps)


def right_trace(rng: random.Random, chain: Chain) -> Trace:
    """A right solution in random forms."""
    return checked_trace(chain, random_question(rng, chain), random_solution(rng, chain))


def checked_trace(chain: Chain, question: str, steps: Sequence[str]) -> Trace:
    """Any solution attempt, checked exactly; after the first wrong step there is no telling."""
    steps = tuple(steps)
    wrong = first_wrong_step(chain, steps)
    count = len(steps) if wrong is None else wrong + 1
    expected = [right_steps(chain, i) if i < count else None for i in range(len(steps))]
    return Trace(chain, question, steps, tuple(expected))


def wrong_number(rng: random.Random, task: ChainTask, value: int) -> int:
    """A number that could be taken for ``value``: off by a little, or one digit changed."""
    while True:
        kind = rng.random()
        if kind < 0.3:
            other = value + rng.choice((-2, -1, 1, 2))
        elif kind < 0.5:
            other = value + rng.choice((-10, 10, -20, 20))
        elif kind < 0.85:
            digits = list(str(value))
            digits[rng.randrange(len(digits))] = str(rng.randrange(10))
            other = int("".join(digits))
        else:
            other = rng.randint(task.lowest, task.highest)
        if other != value and 0 < other <= 199:
            return other


def _try_apply(op: Op, a: int, b: int) -> int | None:
    """``a op b``, or None if it is not a whole number in a printable range."""
    if op in "/%" and (b == 0 or (op == "/" and a % b)):
        return None
    c = demo.apply(op, a, b)
    return c if 0 < c <= 999 else None


def _wrong_step(
    rng: random.Random, task: ChainTask, chain: Chain, i: int, v: int
) -> tuple[Op, int, int, int]:
    """Operation, operands and result of a wrong step ``i`` that starts from the value ``v``."""
    op, b = chain.ops[i]
    a, right = v, _try_apply(op, v, b)
    kind = rng.random()
    if right is None or kind < 0.6:
        return op, a, b, wrong_number(rng, task, right if right is not None else v)
    if kind < 0.75:
        a = wrong_number(rng, task, a)
    elif kind < 0.9:
        others = [x for _, x in chain.ops if x != b]
        b = rng.choice(others) if others and rng.random() < 0.6 else wrong_number(rng, task, b)
    else:
        op = rng.choice([o for o in task.ops if o != op])
    result = _try_apply(op, a, b)  # usually consistent with the wrong operands
    if result is None or rng.random() < 0.25:
        result = right
    return op, a, b, result


def wrong_trace(
    rng: random.Random, chain: Chain, task: ChainTask, rate: float, first: int | None = None
) -> Trace:
    """An attempt with wrong steps, each step wrong with probability ``rate``.

    With ``first``, that step is wrong, and no other one: what follows builds on it faithfully.
    """
    v = chain.start
    steps: list[str] = []
    expected: list[tuple[str, ...] | None] = []
    for i, (op, b) in enumerate(chain.ops):
        right = _try_apply(op, v, b)
        form = rng.choice(STEP_FORMS)
        bad = i == first if first is not None else rng.random() < rate
        parts = _wrong_step(rng, task, chain, i, v) if bad or right is None else (op, v, b, right)
        steps.append(render_step(i + 1, *parts, form))
        expected.append(None if right is None else _forms(i + 1, op, v, b, right))
        v = parts[-1]
    last = len(chain.ops)
    bad = last == first if first is not None else rng.random() < rate
    answer = _wrong_answer(rng, task, chain, v) if bad else v
    steps.append(render_final(answer))
    expected.append((render_final(v),))
    return Trace(chain, random_question(rng, chain), tuple(steps), tuple(expected))


def _wrong_answer(rng: random.Random, task: ChainTask, chain: Chain, v: int) -> int:
    """A wrong final answer: an earlier value, an operand, or a slip."""
    others = [x for x in (*chain.values(), *(b for _, b in chain.ops)) if x != v]
    return rng.choice(others) if others and rng.random() < 0.5 else wrong_number(rng, task, v)


def _forms(number: int, op: Op, a: int, b: int, c: int) -> tuple[str, ...]:
    return tuple(render_step(number, op, a, b, c, form) for form in STEP_FORMS)


def structural_trace(rng: random.Random, chain: Chain, task: ChainTask) -> Trace:
    """An attempt whose every calculation is right, but which does not follow the problem.

    It stops early, skips an operation, repeats one, swaps two neighbours, adds one at the end, or
    numbers a step wrongly.
    """
    plan = list(range(len(chain.ops)))
    at = rng.randrange(len(plan))
    kind = rng.choice(("stop", "stop", "skip", "skip", "repeat", "swap", "extra", "number"))
    numbered_wrongly = None
    if kind == "stop":
        plan = plan[: rng.randrange(1, len(plan))]
    elif kind == "skip":
        del plan[at]
    elif kind == "repeat":
        plan.insert(at, plan[at])
    elif kind == "swap" and at + 1 < len(plan):
        plan[at], plan[at + 1] = plan[at + 1], plan[at]
    elif kind == "number":
        numbered_wrongly = at
    else:
        plan.append(rng.randrange(len(plan)))
    v = chain.start
    steps: list[str] = []
    for place, i in enumerate(plan):
        op, b = chain.ops[i]
        result = _try_apply(op, v, b)
        if result is None:
            result = wrong_number(rng, task, v)
        number = place + 1
        if place == numbered_wrongly:
            number += rng.choice((-1, 1))
        steps.append(render_step(number, op, v, b, result, rng.choice(STEP_FORMS)))
        v = result
    steps.append(render_final(v))
    return checked_trace(chain, random_question(rng, chain), steps)


@dataclass(frozen=True)
class Dialogue:
    """The token ids of a verifier dialogue and what to learn at each of them."""

    ids: list[int]
    label_at: list[int]
    """Positions whose next token is the label of a step."""
    labels: list[int]
    """1 right, 0 wrong, per step: a step after a wrong one is wrong."""
    first_wrong: int
    """Index of the first wrong step; the number of steps if there is none."""
    flaws: list[int]
    """Per token: 1 if it is the first wrong one of its step, 0 if fine, IGNORE if no telling."""
    learn: list[bool]
    """Per token: whether a language model should learn to say it (right steps only)."""


def dialogue(codec: Codec, trace: Trace) -> Dialogue:
    """The RLHFlow dialogue of a trace; all the labels shown in it are "+"."""
    ids = [codec.bos, codec.user, *codec.question(trace.question), codec.space]
    flaws, learn = [IGNORE] * len(ids), [False] * len(ids)
    label_at: list[int] = []
    first_wrong = trace.first_wrong()
    for i, (step, right) in enumerate(zip(trace.steps, trace.expected, strict=True)):
        if i:
            ids.append(codec.user)
            flaws.append(IGNORE)
            learn.append(False)
        ids_of_step = codec.step(step)
        flaws += step_flaws(codec, ids_of_step, right)
        learn += [i < first_wrong] * len(ids_of_step)
        ids += [*ids_of_step, codec.eot, codec.assistant, codec.plus, codec.eot]
        flaws += [IGNORE] * 4
        learn += [False] * 4
        label_at.append(len(ids) - 3)
    labels = [int(i < first_wrong) for i in range(len(trace.steps))]
    # Nothing is asked after the last label: drop the label and the end of its turn.
    return Dialogue(ids[:-2], label_at, labels, first_wrong, flaws[:-2], learn[:-2])


def step_flaws(codec: Codec, ids_of_step: list[int], right: tuple[str, ...] | None) -> list[int]:
    """Per token of a step: 0 up to the first token that no right text shares, which is 1."""
    if right is None:
        return [IGNORE] * len(ids_of_step)
    shared = 0
    for text in right:
        ids = codec.step(text)
        if ids == ids_of_step:
            return [0] * len(ids_of_step)
        same = 0
        while same < min(len(ids), len(ids_of_step)) and ids[same] == ids_of_step[same]:
            same += 1
        shared = max(shared, same)
    if shared >= len(ids_of_step):  # cut short: every token is fine, the end is not
        return [0] * len(ids_of_step)
    return [0] * shared + [1] + [IGNORE] * (len(ids_of_step) - shared - 1)


@dataclass(frozen=True)
class Batch:
    """Padded tensors of some dialogues or solutions, [rows, tokens] unless said otherwise."""

    ids: Tensor
    learn: Tensor
    """Boolean: tokens that the language model should learn to say."""
    flaws: Tensor
    label_rows: Tensor
    """[labels]: row of each label."""
    label_columns: Tensor
    """[labels]: position before each label."""
    labels: Tensor
    """[labels]: 1 right, 0 wrong."""
    weights: Tensor
    """[labels]: labels after the first wrong one weigh less, they are easy."""


def dialogue_batch(codec: Codec, traces: Sequence[Trace]) -> Batch:
    """Right-padded tensors of the dialogues of some traces."""
    dialogues = [dialogue(codec, trace) for trace in traces]
    rows, columns, labels, weights = [], [], [], []
    for row, d in enumerate(dialogues):
        for i, (at, label) in enumerate(zip(d.label_at, d.labels, strict=True)):
            rows.append(row)
            columns.append(at)
            labels.append(label)
            weights.append(1.0 if i <= d.first_wrong else 0.3)
    return Batch(
        ids=padded([d.ids for d in dialogues], codec.pad),
        learn=padded([d.learn for d in dialogues], False),
        flaws=padded([d.flaws for d in dialogues], IGNORE),
        label_rows=torch.tensor(rows),
        label_columns=torch.tensor(columns),
        labels=torch.tensor(labels),
        weights=torch.tensor(weights),
    )


def solution_rows(
    codec: Codec,
    task: ChainTask,
    rng: random.Random,
    operations: int,
    tokens: int,
    forms: tuple[float, ...],
) -> list[Row]:
    """Right solutions of one operation count as generator dialogues."""
    rows = []
    for _ in range(max(1, tokens // (24 + 11 * operations))):
        chain = training_chain(task, rng, operations)
        prompt = codec.prompt(random_question(rng, chain))
        rows.append(learned(prompt, codec.solution(random_solution(rng, chain, forms))))
    return rows


def learned(prompt: list[int], text_ids: list[int]) -> Row:
    """What is written after a prompt, to be learnt."""
    return [*prompt, *text_ids], [False] * len(prompt) + [True] * len(text_ids)


def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """A tensor [rows, tokens] of right-padded rows."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])
