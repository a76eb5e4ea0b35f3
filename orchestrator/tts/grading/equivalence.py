"""Mathematical equality by math-verify. Imported in the worker process only: nothing here is safe
from hanging or from eating all memory, and importing sympy takes a while.
"""

from __future__ import annotations

import re
from typing import Any

from math_verify import parse, verify

from .verdict import Outcome, Reason, Verdict

# math-verify looks for LaTeX inside an environment; a bare answer gets one.
_ENVIRONMENT = re.compile(r"(?<!\\)\$|\\\(|\\\[|\\boxed")


def compare(prediction: str, reference: str) -> Verdict:
    """Compare two answers; the reference decides what form is asked for (math-verify's gold).

    Raises MemoryError. Any other error leaves the pair undecided, unless another reading of the
    same answers is equal.
    """
    failed = False
    references = _readings(reference)
    for target in _readings(prediction):
        for gold in references:
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


def _readings(answer: str) -> list[Any]:
    """What math-verify makes of an answer: a sympy object, its text, both or neither.

    Its own time limit is off: it uses SIGALRM, which is ours (see worker), and cannot interrupt C.
    """
    text = answer if _ENVIRONMENT.search(answer) else rf"\boxed{{{answer}}}"
    return list(parse(text, parsing_timeout=None))
