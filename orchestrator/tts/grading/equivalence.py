"""Mathematical equality by math-verify. Imported in the worker process only: nothing here is safe
from hanging or from eating all memory, and importing sympy takes a while.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from math_verify import parse, verify

from .canonical import trimmed
from .invariants import sketch_of
from .sketch import Parsed
from .verdict import Outcome, Reason, Verdict

# math-verify looks for LaTeX inside an environment; a bare answer gets one.
_ENVIRONMENT = re.compile(r"(?<!\\)\$|\\\(|\\\[|\\boxed")
# A number as programs print it, "3.54e-07"; "2e-10" may well be twice Euler's number less ten.
_PRINTED = re.compile(r"(-?\d\.\d+)e([+-]\d{1,3})|(-?\d)e([+-]0\d)", re.ASCII)
_KEPT_ANSWERS = 1024  # a few problems' worth of parsed answers


def read(answer: str) -> Parsed:
    """Parse an answer and sketch it. Raises MemoryError."""
    readings = readings_of(answer)
    texts = tuple(reading.strip() for reading in readings if isinstance(reading, str))
    formulas = [reading for reading in readings if not isinstance(reading, str)]
    try:
        sketch = sketch_of(formulas[0]) if len(formulas) == 1 else None
    except MemoryError:
        raise
    except Exception:  # sympy raises about everything
        sketch = None
    return Parsed(texts, bool(formulas), sketch)


def compare(prediction: str, reference: str) -> Verdict:
    """Compare two answers; the reference decides what form is asked for (math-verify's gold).

    Raises MemoryError. Any other error leaves the pair undecided, unless another reading of the
    same answers is equal.
    """
    failed = False
    for target in readings_of(prediction):
        for gold in readings_of(reference):
            try:
                if verify(gold, target, timeout_seconds=None, raise_on_error=True):
                    return Verdict(Outcome.EQUAL, Reason.MATH)
            except MemoryError:
                raise
            except Exception:  # sympy raises about everything
                failed = True
    if failed:
        return Verdict(Outcome.UNDECIDED, Reason.ERROR)
    return Verdict(Outcome.DIFFERENT, Reason.MATH)


@lru_cache(_KEPT_ANSWERS)
def readings_of(answer: str) -> tuple[Any, ...]:
    """What math-verify makes of an answer: a sympy object, its text, both or neither.

    Its own time limit is off: it uses SIGALRM and cannot interrupt C; the worker has a better one.
    """
    answer = trimmed(answer)
    if printed := _PRINTED.fullmatch(answer):
        digits, exponent = printed[1] or printed[3], printed[2] or printed[4]
        answer = rf"{digits}\times 10^{{{int(exponent)}}}"
    text = answer if _ENVIRONMENT.search(answer) else rf"\boxed{{{answer}}}"
    return tuple(parse(text, parsing_timeout=None))
