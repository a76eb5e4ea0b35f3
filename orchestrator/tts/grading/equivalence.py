"""Mathematical equality by math-verify. Imported in the worker process only: nothing here is safe
from hanging or from eating all memory, and importing sympy takes a while.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import math_verify.grader
import sympy  # type: ignore[import-untyped]
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

from .canonical import trimmed, without_dollars
from .invariants import sketch_of
from .sketch import Parsed, same, separated
from .verdict import Outcome, Reason, Verdict

# math-verify looks for LaTeX inside an environment; a bare answer gets one.
_ENVIRONMENT = re.compile(r"(?<!\\)\$|\\\(|\\\[|\\boxed")
# A number as programs print it, "3.54e-07"; "2e-10" may well be twice Euler's number less ten.
_PRINTED = re.compile(
    r"(?<![\w.^])(?:(?P<decimals>\d*\.\d+|1)|(?P<digits>\d+(?=[eE]\d|[eE][+-]0|E)))"
    r"\s*(?:[eE]|\\(?:mathrm|text)\{[eE]\})\s*(?P<brace>\{)?(?P<exponent>[+-]?\d{1,5})(?(brace)\})(?![\d.])",
    re.ASCII,
)
_BARE_EXPONENT = re.compile(r"(?:\^|\*\*)\s*([+-]?\d+)", re.ASCII)
_RAISED = re.compile(r"(?<=\d)[⁺⁻]?[⁰¹²³⁴-⁹]+")
_LOWERED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
# Terms that are left out. "0.333..." has none: there the dots say that the digits go on.
_DOTS = r"(?:\\[lc]?dots[cbm]?(?![A-Za-z])|\.{3}|…)"
_ELISION = re.compile(rf"(?P<separator>[,;+*]|\\(?:cdot|times)(?![a-z]))\s*{_DOTS}")
_ENDLESS = re.compile(rf"(?P<decimals>\.\d+)\s*{_DOTS}")
_IN_BRACES = re.compile(r"(?:\\left\s*)?\\\{(?P<terms>.*?)(?:\\right\s*)?\\\}", re.DOTALL)
_COUNTS = {sympy.Symbol(name, real=True): sympy.Symbol(name, positive=True) for name in "kmnN"}
# Of words, "$5" and "= 5" the number is the answer; of a formula that cannot be parsed it is not.
_NUMBER_IN_TEXT = re.compile(
    r"(?<![^\W\d_])(?<!\\)[^\W\d_]{2,}|\A(?:[=≈$]|\\approx)\s*-?[\d.,/]+\Z|\A-?[\d.,/]+\s*\$\Z"
)
_KEPT_ANSWERS = 1024  # a few problems' worth of parsed answers


def read(answer: str) -> Parsed:
    """Parse an answer and sketch it. Raises MemoryError."""
    readings = readings_of(answer)
    texts = tuple(reading.strip() for reading in readings if isinstance(reading, str))
    formulas = [reading for reading in readings if not isinstance(reading, str)]
    return Parsed(texts, bool(formulas), _sketch(formulas[0]) if len(formulas) == 1 else None)


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
    answer = _PRINTED.sub(_power_of_ten, _RAISED.sub(_lowered, trimmed(answer)))
    answer = _ENDLESS.sub(r"\g<decimals>", _BARE_EXPONENT.sub(r"^{\1}", answer))
    if _ELISION.search(answer):  # what is left out is a term of its own, and the order counts
        answer = _ELISION.sub(r"\g<separator>\\Upsilon ", answer)
        answer = without_dollars(answer)
        answer = in_braces["terms"] if (in_braces := _IN_BRACES.fullmatch(answer)) else answer
        answer = answer if answer.startswith("(") else f"({answer})"
    text = answer if _ENVIRONMENT.search(answer) else rf"\boxed{{{answer}}}"
    kinds = [LatexExtractionConfig(), ExprExtractionConfig()]
    if not _NUMBER_IN_TEXT.search(answer):
        kinds.pop()
    return tuple(parse(text, kinds, parsing_timeout=None))


def _power_of_ten(number: re.Match[str]) -> str:
    digits = number["decimals"] or number["digits"]
    power = rf"{digits}\times 10^{{{int(number['exponent'])}}}"
    return f"({power})" if number.string[: number.start()].rstrip().endswith("/") else power


def _lowered(exponent: re.Match[str]) -> str:
    return f"^{{{exponent[0].translate(_LOWERED)}}}"


_sympy_expr_eq = math_verify.grader.sympy_expr_eq


def _expr_eq(gold: Any, target: Any, *options: Any, **more: Any) -> Any:
    """math-verify's comparison, which drops what is small, of two numbers as of all their parts.

    The sketches decide first, at any size, on what differs and what is the same.
    """
    one, two = _sketch(gold), _sketch(target)
    if separated(one, two):
        return False
    if same(one, two):
        return True
    if _is_with_roots(gold) and isinstance(target, sympy.Expr):
        gold, target = gold.xreplace(_COUNTS), target.xreplace(_COUNTS)
    return _sympy_expr_eq(gold, target, *options, **more)


def _is_with_roots(formula: Any) -> bool:
    return isinstance(formula, sympy.Expr) and any(
        not power.exp.is_Integer for power in formula.atoms(sympy.Pow)
    )


math_verify.grader.sympy_expr_eq = _expr_eq


def _sketch(formula: Any) -> Any:
    try:
        return sketch_of(formula)
    except MemoryError:
        raise
    except Exception:  # sympy raises about everything
        return None
