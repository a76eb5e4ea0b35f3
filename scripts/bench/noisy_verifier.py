"""A miscalibrated, noisy verifier of demo problems: an exact check whose verdicts are often wrong.

A right step is accused in 15% of the cases, a wrong one passed in 45%, a wrong final answer in 60%;
the score says 0.75 to 0.99 or 0.02 to 0.42 in any case, so it is much surer than it may be. Errors
are a function of the chain of steps: the same chain always has the same score.
"""

import hashlib

from tts.datasets.chains import right_steps
from tts.datasets.demo_questions import read_question


def score(question: str, steps: list[str]) -> float:
    """How right the last step seems; see `docs/guides/own-verifier-and-strategy.md`."""
    chain = read_question(question)
    right = chain is not None and all(
        step.strip() in right_steps(chain, place) for place, step in enumerate(steps)
    )
    raw = hashlib.sha256("\n".join([question, *steps]).encode()).digest()
    draw, where = (int.from_bytes(raw[at : at + 4], "big") / 2**32 for at in (0, 4))
    ends = bool(steps) and "boxed" in steps[-1]
    passed = draw >= 0.15 if right else draw < (0.60 if ends else 0.45)
    return 0.75 + 0.24 * where if passed else 0.02 + 0.40 * where
