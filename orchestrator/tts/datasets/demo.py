"""The demo problems: chains of integer operations, drawn from a seed, worded, and read back.

A chain is a start value and operations applied to it, left to right; a `ChainTask` says which
operations and values its chains have. Everything is pure: a problem is a function of its chain,
wording included. About one chain in ten is held out, decided by a hash of the chain alone, so that
models can be trained on the others.

A demo problem is a chain of 2 to 10 operations (``+ - * /``, division always exact), with every
value on the way in 2..99: an arithmetic that a model of a few million parameters can master as a
verifier while a smaller one, as a generator, still makes mistakes. The demo pair was trained on
chains that are not held out. It knows these chains in their wordings and nothing else; any other
question it answers by guessing.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from tts.problem import Problem

Op = Literal["+", "-", "*", "/", "%"]
Surface = Literal["expression", "instructions", "story"]

SURFACES: Final[tuple[Surface, ...]] = ("expression", "instructions", "story")

LEVELS: Final[dict[int, tuple[int, ...]]] = {
    1: (2,),
    2: (3, 4),
    3: (5, 6),
    4: (7, 8),
    5: (9, 10),
}
"""Level -> the operation counts of its problems."""

NAMES: Final = ("Mia", "Tom", "Ana", "Leo", "Eva", "Max", "Zoe", "Ben")
THINGS: Final = ("apples", "books", "coins", "stones", "cards", "shells", "pens", "stamps")

_HELD_OUT_BUCKETS: Final = 10  # one bucket of ten is held out

STORY: Final[dict[Op, str]] = {
    "+": "Then {} more arrive.",
    "-": "Then {} are given away.",
    "*": "Then there are {} times as many.",
    "/": "Then only one of {} equal parts is left.",
    "%": "Then full boxes of {} are sent off, and the rest stays.",
}
INSTRUCTION: Final[dict[Op, str]] = {
    "+": "Add {}.",
    "-": "Subtract {}.",
    "*": "Multiply by {}.",
    "/": "Divide by {}.",
    "%": "Keep the remainder modulo {}.",
}


@dataclass(frozen=True, slots=True)
class Chain:
    """A start value and the operations applied to it, left to right."""

    start: int
    ops: tuple[tuple[Op, int], ...]

    @property
    def key(self) -> str:
        """The exact identity of the problem, such as ``37+58*4``; wording does not count."""
        return str(self.start) + "".join(f"{op}{operand}" for op, operand in self.ops)

    def values(self) -> tuple[int, ...]:
        """The start value and the value after each operation: one more than operations."""
        values = [self.start]
        for op, operand in self.ops:
            values.append(apply(op, values[-1], operand))
        return tuple(values)

    @property
    def answer(self) -> int:
        """The value after the last operation."""
        return self.values()[-1]


@dataclass(frozen=True)
class ChainTask:
    """A kind of chains: their operations, the range of their values, and what is held out."""

    name: str
    """What the hashes and the seeds of this task begin with."""
    ops: tuple[Op, ...]
    lowest: int
    """The lowest start value, operand and intermediate value."""
    highest: int
    """The highest start value, operand and intermediate value."""

    def sample_chain(self, rng: random.Random, operations: int) -> Chain:
        """A random chain: each operation uniform among the possible kinds, then its operand."""
        start = value = rng.randint(self.lowest, self.highest)
        ops: list[tuple[Op, int]] = []
        for _ in range(operations):
            choices = {op: operands for op in self.ops if (operands := self._operands(op, value))}
            op = rng.choice(list(choices))
            operand = rng.choice(choices[op])
            ops.append((op, operand))
            value = apply(op, value, operand)
        return Chain(start, tuple(ops))

    def _operands(self, op: Op, value: int) -> Sequence[int]:
        """The operands that keep ``value op operand`` in range (empty if there are none)."""
        low, high = self.lowest, self.highest
        if op == "+":
            return range(low, high - value + 1)
        if op == "-":
            return range(low, value - low + 1)
        if op == "*":
            return range(low, high // value + 1)
        if op == "/":
            return [d for d in range(low, value // low + 1) if value % d == 0]
        return [d for d in range(low, value) if value % d >= low]

    def is_held_out(self, key: str) -> bool:
        """Whether the chain of this key is kept from training: one in ten, by a stable hash."""
        return self.digest("split", key) % _HELD_OUT_BUCKETS == 0

    def digest(self, purpose: str, key: str) -> int:
        """64 stable bits for a key; independent between purposes."""
        raw = hashlib.sha256(f"{self.name}/{purpose}/{key}".encode()).digest()
        return int.from_bytes(raw[:8], "big")

    def question_of(self, chain: Chain) -> str:
        """The one wording that a problem with this chain has."""
        bits = self.digest("wording", chain.key)
        surface = SURFACES[bits % len(SURFACES)]
        bits //= len(SURFACES)
        name = NAMES[bits % len(NAMES)]
        bits //= len(NAMES)
        return render_question(chain, surface, name, THINGS[bits % len(THINGS)])

    def held_out_chains(self, count: int, seed: int) -> list[Chain]:
        """``count`` different held-out chains, deterministic from ``seed``.

        The levels are cycled. With the same seed a shorter list is the beginning of a longer one.
        """
        rng = random.Random(f"{self.name}/{seed}")
        levels = itertools.cycle(LEVELS.values())
        operations = next(levels)
        chains: dict[str, Chain] = {}
        while len(chains) < count:
            chain = self.sample_chain(rng, rng.choice(operations))
            if self.is_held_out(chain.key) and chain.key not in chains:
                chains[chain.key] = chain
                operations = next(levels)
        return list(chains.values())


def apply(op: Op, value: int, operand: int) -> int:
    """``value op operand``; raises ValueError where a division leaves a remainder."""
    if op == "+":
        return value + operand
    if op == "-":
        return value - operand
    if op == "*":
        return value * operand
    quotient, remainder = divmod(value, operand)
    if op == "%":
        return remainder
    if remainder:
        raise ValueError(f"{value} / {operand} is not a whole number")
    return quotient


def render_question(chain: Chain, surface: Surface, name: str, thing: str) -> str:
    """The wording of a problem; ``name`` and ``thing`` matter to the story only."""
    if surface == "expression":
        return f"Compute {expression(chain)}."
    if surface == "instructions":
        lines = [INSTRUCTION[op].format(operand) for op, operand in chain.ops]
        return " ".join([f"Start with {chain.start}.", *lines, "What is the result?"])
    lines = [STORY[op].format(operand) for op, operand in chain.ops]
    opening = f"{name} has {chain.start} {thing}."
    return " ".join([opening, *lines, f"How many {thing} does {name} have now?"])


def expression(chain: Chain) -> str:
    """The chain as one expression, with the parentheses that precedence asks for."""
    text, loose = str(chain.start), False  # loose: the text ends in an open + or -
    for op, operand in chain.ops:
        if op in "*/%" and loose:
            text = f"({text})"
        loose = op in "+-"
        text = f"{text} {op} {operand}"
    return text


def level_of(operations: int) -> int:
    """The level of a problem with this many operations."""
    for level, counts in LEVELS.items():
        if operations in counts:
            return level
    raise ValueError(f"no level has {operations} operations")


DEMO: Final = ChainTask("tts-demo", ("+", "-", "*", "/"), lowest=2, highest=99)

EXAMPLE = "Compute (((12 + 30) / 6 + 8) * 4 - 11) / 7."
"""A question that the pair answers rightly."""
EXAMPLES = (
    "Compute 12 + 30 - 5.",
    "Mia has 12 apples. Then 30 more arrive. Then 5 are given away. "
    "How many apples does Mia have now?",
    "Start with 8. Multiply by 9. Subtract 12. Divide by 5. Add 40. What is the result?",
    EXAMPLE,
)
"""Questions in each of the wordings, the easiest first."""

_OPS: dict[str, Op] = {op: op for op in DEMO.ops}
_MOST = max(count for counts in LEVELS.values() for count in counts)
_LEAST = min(count for counts in LEVELS.values() for count in counts)


def problem_of(chain: Chain) -> Problem:
    """The demo problem of a chain, from which its id follows; its level is 1 to 5."""
    return Problem(
        f"demo-{DEMO.digest('id', chain.key):016x}",
        DEMO.question_of(chain),
        str(chain.answer),
        level_of(len(chain.ops)),
    )


def demo_problems(count: int, seed: int) -> list[Problem]:
    """``count`` different held-out problems, as `ChainTask.held_out_chains` draws them."""
    return [problem_of(chain) for chain in DEMO.held_out_chains(count, seed)]


def why_outside(question: str) -> str | None:
    """Why the demo pair cannot be expected to answer a question, in a sentence; None if it can."""
    chain = read_question(question)
    if chain is None:
        return (
            "The demo pair only knows chains of whole-number operations in its own wordings, such "
            f"as: {EXAMPLE}"
        )
    if not _LEAST <= len(chain.ops) <= _MOST:
        return (
            f"The demo pair knows chains of {_LEAST} to {_MOST} operations; this one has "
            f"{len(chain.ops)}."
        )
    scope = f"the demo pair only knows whole numbers from {DEMO.lowest} to {DEMO.highest}"
    for number in (chain.start, *(operand for _, operand in chain.ops)):
        if not DEMO.lowest <= number <= DEMO.highest:
            return f"{number} is in the question, but {scope}."
    value = chain.start
    for op, operand in chain.ops:
        try:
            following = apply(op, value, operand)
        except ValueError:
            return f"{value} / {operand} is no whole number, and {scope}."
        if not DEMO.lowest <= following <= DEMO.highest:
            return f"{value} {op} {operand} is {following} on the way, but {scope}."
        value = following
    return None


def read_question(question: str) -> Chain | None:
    """The chain that a question spells in one of the demo's wordings; None if it spells none."""
    text = " ".join(question.split())
    if match := re.fullmatch(r"Compute ([\d\s+*/()-]+)\.", text):
        words = re.findall(r"\d+|[-+*/]", match[1])
        chain = _chain(words[:1], words[1:])
        return chain if chain and expression(chain) == match[1] else None
    if match := re.fullmatch(r"Start with (\d+)\. (.*) What is the result\?", text):
        return _chain([match[1]], _steps(match[2], INSTRUCTION))
    if match := re.fullmatch(r"(\w+) has (\d+) (\w+)\. (.*) How many \3 does \1 have now\?", text):
        return _chain([match[2]], _steps(match[4], STORY))
    return None


def _steps(text: str, templates: Mapping[Op, str]) -> list[str]:
    """Operation and operand of each sentence in turn; empty if one is of no template."""
    words: list[str] = []
    for sentence in re.findall(r"[^.]+\.", text):
        for op, template in templates.items():
            pattern = re.escape(template).replace(r"\{\}", r"(\d+)")
            if match := re.fullmatch(pattern, sentence.strip()):
                words += [op, match[1]]
                break
        else:
            return []
    return words


def _chain(start: list[str], words: list[str]) -> Chain | None:
    if not start or not words or len(words) % 2 or any(len(word) > 9 for word in words + start):
        return None
    steps = [(op, operand) for op, operand in pairwise(words)][::2]
    if not all(op in _OPS and operand.isdigit() for op, operand in steps):
        return None
    return Chain(int(start[0]), tuple((_OPS[op], int(operand)) for op, operand in steps))
