"""The demo problems: chains of integer operations, generated from a seed.

A problem is a chain of 2 to 10 operations (``+ - * /``, division always exact), with every value on
the way in 2..99. The small range is deliberate: it is an arithmetic that a model of a few million
parameters can master as a verifier while a smaller one, as a generator, still makes mistakes, so
that verifier-guided search has something to find. The demo pair was trained on chains that are not
held out (see `chains`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tts.problem import Problem

from .chains import Chain, ChainTask, level_of

DEMO: Final = ChainTask("tts-demo", ("+", "-", "*", "/"), lowest=2, highest=99)


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


def demo_problems(count: int, seed: int, levels: Sequence[int] = (1, 2, 3, 4, 5)) -> list[Problem]:
    """``count`` different held-out problems, as `ChainTask.held_out_chains` draws them."""
    return [problem_of(chain) for chain in DEMO.held_out_chains(count, seed, levels)]
