"""The demo problems: chains of integer operations, generated from a seed, and read back.

A problem is a chain of 2 to 10 operations (``+ - * /``, division always exact), with every value on
the way in 2..99. The small range is deliberate: it is an arithmetic that a model of a few million
parameters can master as a verifier while a smaller one, as a generator, still makes mistakes, so
that verifier-guided search has something to find. The demo pair was trained on chains that are not
held out (see `chains`). It knows these chains in their wordings and nothing else; any other
question it answers by guessing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from tts.problem import Problem

from .chains import INSTRUCTION, LEVELS, STORY, Chain, ChainTask, Op, apply, expression, level_of

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
    """The demo problem of a chain; its id follows from the chain, whatever seed drew it.

    Its level is from 1 (2 operations) to 5 (9 or 10 operations).
    """
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
