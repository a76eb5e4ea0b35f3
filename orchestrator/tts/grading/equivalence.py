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
from .invariants import is_inequality, sketch_of
from .notation import readable
from .sketch import Parsed, same, separated
from .units import without_unit
from .verdict import Outcome, Reason, Verdict

# math-verify looks for LaTeX inside an environment; a bare answer gets one.
_ENVIRONMENT = re.compile(r"(?<!\\)\$|\\\(|\\\[|\\boxed")
# Terms that are left out.
_ELISION = re.compile(
    r"(?P<separator>[,;+*]|\\(?:cdot|times)(?![a-z]))\s*"
    r"(?:\\[lc]?dots[cbm]?(?![A-Za-z])|\.{3}|…)"
)
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
                if verify(
                    gold,
                    target,
                    allow_set_relation_comp=True,
                    timeout_seconds=None,
                    raise_on_error=True,
                ):
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
    answer = readable(without_unit(trimmed(answer)))
    if _ELISION.search(answer):  # what is left out is a term of its own, and the order counts
        answer = _ELISION.sub(r"\g<separator>\\Upsilon ", answer)
        answer = without_dollars(answer)
        answer = in_braces["terms"] if (in_braces := _IN_BRACES.fullmatch(answer)) else answer
        answer = answer if answer.startswith("(") else f"({answer})"
    text = answer if _ENVIRONMENT.search(answer) else rf"\boxed{{{answer}}}"
    kinds = [LatexExtractionConfig(), ExprExtractionConfig()]
    if not _NUMBER_IN_TEXT.search(answer):
        kinds.pop()
    return tuple(map(_with_imaginary_unit, parse(text, kinds, parsing_timeout=None)))


def _with_imaginary_unit(reading: Any) -> Any:
    """A formula in which i is the imaginary unit, where it can be."""
    letters = {s: sympy.I for s in getattr(reading, "free_symbols", ()) if s.name == "i"}
    try:
        return reading.xreplace(letters) if letters else reading
    except (TypeError, NotImplementedError):  # an inequality, an interval
        return reading


_sympy_expr_eq = math_verify.grader.sympy_expr_eq


def _expr_eq(gold: Any, target: Any, *options: Any, **more: Any) -> Any:
    """math-verify's comparison, which drops what is small, of two numbers as of all their parts.

    The sketches decide first, at any size, on what differs and what is the same.
    """
    gold, target = _as_union(gold, target), _as_union(target, gold)
    one, two = _sketch(gold), _sketch(target)
    if separated(one, two):
        return False
    if same(one, two):
        return True
    if _is_with_roots(gold) and isinstance(target, sympy.Expr):
        gold, target = gold.xreplace(_COUNTS), target.xreplace(_COUNTS)
    return _sympy_expr_eq(gold, target, *options, **more)


def _as_union(formula: Any, other: Any) -> Any:
    """The union that "x < 1 or x > 2" is, if the other answer is one."""
    if isinstance(formula, sympy.FiniteSet) and isinstance(other, sympy.Union):
        return (
            sympy.Or(*formula.args).as_set() if all(map(is_inequality, formula.args)) else formula
        )
    return formula


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
