"""The demo problems: chains of integer operations, generated and checked exactly.

A problem is a chain of 2 to 10 operations (``+ - * /``, division always exact), with every value on
the way in 2..99. The small range is deliberate: it is an arithmetic that a model of a few million
parameters can master as a verifier while a smaller one, as a generator, still makes mistakes, so
that verifier-guided search has something to find. The demo pair was trained on chains that are not
held out (see `chains`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .chains import Chain, ChainTask, level_of, solution_steps

DEMO: Final = ChainTask("tts-demo", ("+", "-", "*", "/"), lowest=2, highest=99)


@dataclass(frozen=True, slots=True)
class DemoProblem:
    """One problem with its reference answer and its worked solution."""

    id: str
    """A hash of the chain, which is the same whatever seed drew it."""
    question: str
    answer: str
    level: int
    """The level, from 1 (2 operations) to 5 (9 or 10 operations)."""
    steps: tuple[str, ...]
    """The worked solution, one line per operation and the closing sentence, in plain form."""


def problem_of(chain: Chain) -> DemoProblem:
    """The demo problem of a chain."""
    return DemoProblem(
        id=f"demo-{DEMO.digest('id', chain.key):016x}",
        question=DEMO.question_of(chain),
        answer=str(chain.answer),
        level=level_of(len(chain.ops)),
        steps=solution_steps(chain),
    )


def demo_problems(
    count: int, seed: int, levels: Sequence[int] = (1, 2, 3, 4, 5)
) -> list[DemoProblem]:
    """``count`` different held-out problems, as `ChainTask.held_out_chains` draws them."""
    return [problem_of(chain) for chain in DEMO.held_out_chains(count, seed, levels)]
