"""Mathematical equality by math-verify, and the sketches of its formulas.

Imported in the worker process only: nothing here is safe from hanging or from eating all memory,
and importing sympy takes a while.
"""

from __future__ import annotations

import hashlib
import re
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

import math_verify.grader
import sympy  # type: ignore[import-untyped]
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from sympy.core.function import AppliedUndef  # type: ignore[import-untyped]
from sympy.core.numbers import (  # type: ignore[import-untyped]
    ImaginaryUnit,
    NumberSymbol,
)
from sympy.logic.boolalg import Boolean  # type: ignore[import-untyped]

from .canonical import readable, trimmed, without_dollars
from .problem_grader import Outcome, Reason, Verdict
from .sketch import DIGITS, Kind, Parsed, Sketch, Value, same, separated
from .units import without_unit

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
    is_pair = isinstance(formula, sympy.FiniteSet) and isinstance(other, sympy.Union)
    inequalities = is_pair and all(map(is_inequality, formula.args))
    return sympy.Or(*formula.args).as_set() if inequalities else formula


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


_POINTS = 2
_CERTAIN_BITS = 60
_APPROXIMATE_DIGITS = 15  # of a decimal number: so many are a calculator's, and fewer are exact
_MAX_NODES = 400
_MAX_EXPONENT = 64  # of a symbolic power
_MAX_NUMBER_EXPONENT = 2000  # of a number's power
_MAX_RATIONAL_EXPONENT = 100_000  # of the power of a rational number with few digits
_MAX_FACTORIAL = 5000
# further away than any finite value
_INFINITY = {sympy.oo: Decimal("1e999999999"), -sympy.oo: Decimal("-1e999999999")}
_PERCENT = sympy.UnevaluatedExpr(sympy.Rational(1, 100))
_KEPT_SKETCHES = 4096

_SERIES_DIGITS = 20  # of a sum, a product or an integral
_SERIES_WORK = 30  # digits to which sympy goes before it gives up, as at a pole
_MOST_TERMS = 1000
_MOST_NODES = 60  # of a term or an integrand, which is evaluated some hundred times
_LARGEST_LIMIT = 1000

_ELEMENTARY: tuple[type, ...] = (
    *(sympy.Integer, sympy.Rational, sympy.Float, NumberSymbol, ImaginaryUnit, sympy.Symbol),
    *(sympy.Add, sympy.Mul, sympy.Pow, sympy.Abs, sympy.exp, sympy.log),
    *(sympy.sin, sympy.cos, sympy.tan, sympy.cot, sympy.sec, sympy.csc),
    *(sympy.asin, sympy.acos, sympy.atan, sympy.sinh, sympy.cosh, sympy.tanh),
    *(sympy.Max, sympy.Min, sympy.factorial),
)


def sketch_of(formula: Any) -> Sketch | None:
    """The invariants of what math-verify parsed; None where none is certain."""
    if isinstance(formula, sympy.Tuple):
        return Sketch(Kind.TUPLE, parts=_sketches(formula.args))
    if isinstance(formula, sympy.FiniteSet) and not any(map(is_inequality, formula.args)):
        return Sketch(Kind.SET, parts=_sketches(formula.args))
    if isinstance(formula, sympy.Interval):
        brackets = ("(" if formula.left_open else "[") + (")" if formula.right_open else "]")
        return Sketch(Kind.INTERVAL, brackets, parts=_sketches((formula.start, formula.end)))
    if isinstance(formula, sympy.Union):
        return Sketch(Kind.UNION, parts=_sketches(formula.args))
    if isinstance(formula, sympy.MatrixBase):
        return Sketch(Kind.MATRIX, str(formula.shape), parts=_sketches(formula.flat()))
    if isinstance(formula, sympy.Eq):
        return _assignment(formula)
    if isinstance(formula, sympy.Mul) and formula.args[1:] == (_PERCENT,):
        number = formula.args[0]
        return Sketch(Kind.PERCENTAGE, parts=_sketches((number, number / 100)))
    return _scalar(formula) if isinstance(formula, sympy.Expr) else None


def is_inequality(formula: Any) -> bool:
    """Whether it is one inequality, or several that hold at once."""
    return isinstance(formula, Boolean) and not formula.is_Equality


def _sketches(formulas: Any) -> tuple[Sketch | None, ...]:
    return tuple(map(sketch_of, formulas))


def _assignment(equation: Any) -> Sketch | None:
    """The value that "x=5" or "y=2z" assigns; other equations may have several, or none."""
    symbol, value = equation.lhs, equation.rhs
    if not isinstance(symbol, sympy.Symbol) or not isinstance(value, sympy.Expr):
        return None
    scalar = None if symbol in value.free_symbols else _scalar(value)
    if scalar is None:
        return None
    is_plain = symbol.is_real and value.is_real and value.is_polynomial(*value.free_symbols)
    return Sketch(Kind.ASSIGNMENT, symbol.name if is_plain else "", parts=(scalar,))


_RATIONAL = (sympy.Rational, sympy.Add, sympy.Mul, sympy.Pow, sympy.factorial)


@lru_cache(_KEPT_SKETCHES)
def _scalar(expression: Any) -> Sketch | None:
    if expression in _INFINITY:
        value = (_INFINITY[expression], Decimal(0))
        return Sketch(Kind.SCALAR, str(expression), (value,) * _POINTS, exact=str(expression))
    text = "".join(sorted(str(expression).lower().replace("*", "").replace(" ", "")))
    is_symbol = isinstance(expression, sympy.Symbol)
    series = expression.atoms(sympy.Sum, sympy.Product, sympy.Integral)
    constants = {term: _value_of(term) for term in series if not term.free_symbols}
    constants = {term: _fraction(value) for term, value in constants.items() if value is not None}
    is_rounded = bool(constants) or _is_rounded(expression)
    constants |= {
        call: sympy.Symbol(str(call), real=True) for call in expression.atoms(AppliedUndef)
    }
    expression = _fraction(expression, constants)
    if not _is_ordinary(expression):
        return None
    symbols = expression.free_symbols
    values: list[Value] = []
    at: dict[Any, Any] = {}
    for point in range(_POINTS):
        at = {symbol: _coordinate(symbol.name, point) for symbol in symbols}
        try:
            values.append(_value(expression.evalf(DIGITS, subs=at)))
        except (TypeError, ValueError, ArithmeticError):  # no number: a pole, or sympy's own limits
            return None
    is_exact = not symbols or all(power.exp.is_Integer for power in expression.atoms(sympy.Pow))
    exact = _digest(expression.xreplace(at)) if is_exact else ""
    return Sketch(Kind.SCALAR, text, tuple(values), is_symbol, exact, is_rounded)


def _fraction(expression: Any, values: dict[Any, Any] | None = None) -> Any:
    """With fractions for decimal numbers, and for other terms what is known of them."""
    fractions = {number: sympy.Rational(str(number)) for number in expression.atoms(sympy.Float)}
    # at once: sympy rounds what it builds
    return expression.xreplace({**fractions, **(values or {})})


def _is_rounded(expression: Any) -> bool:
    """Whether a decimal number, 1.6 or 1.6 * 10**-19, or one with as many digits as fit."""
    factors = expression.args if isinstance(expression, sympy.Mul) else (expression,)
    is_plain = all(
        f.is_Number or (f.is_Pow and f.args[0] == 10 and f.exp.is_Integer) for f in factors
    )
    decimals = expression.atoms(sympy.Float)
    return bool(decimals) and (is_plain or any(_digits(d) >= _APPROXIMATE_DIGITS for d in decimals))


def _digits(number: Any) -> int:
    return len(Decimal(str(number)).normalize().as_tuple().digits)


def _value(number: Any) -> Value:
    """Raises ValueError if it is no number, or if not all of its digits are certain."""
    real, imaginary = number.as_real_imag()
    for part in (real, imaginary):
        if not part.is_Integer and not (part.is_Float and part._prec >= _CERTAIN_BITS):
            raise ValueError(f"{part} is no certain number")
    return Decimal(str(real)), Decimal(str(imaginary))


def _digest(expression: Any) -> str:
    """A digest that no other rational number has; empty for a number that is not rational."""
    number = expression.doit() if _is_rational(expression) else sympy.nan
    if not number.is_Rational:
        return ""
    return hashlib.sha256(f"{int(number.p):x}/{int(number.q):x}".encode()).hexdigest()[:32]


def _is_rational(expression: Any) -> bool:
    """Whether it is made of rational numbers; a root of one need not be one."""
    return all(isinstance(node, _RATIONAL) for node in sympy.preorder_traversal(expression))


def _is_ordinary(expression: Any) -> bool:
    """Whether all of an expression is elementary, and of a size at which values are certain."""
    for count, node in enumerate(sympy.preorder_traversal(expression)):
        if count >= _MAX_NODES or not isinstance(node, _ELEMENTARY):
            return False
        if isinstance(node, sympy.Symbol) and (node.is_integer or node.is_negative):
            return False
        if isinstance(node, sympy.Pow) and not _is_ordinary_power(node):
            return False
        if isinstance(node, sympy.factorial):
            (number,) = node.args
            if not (number.is_Integer and 0 <= number <= _MAX_FACTORIAL):
                return False
    return True


def _is_ordinary_power(power: Any) -> bool:
    base, exponent = power.args
    numbers = (number for inner in exponent.atoms(sympy.Pow) for number in inner.args)
    if _is_rational(exponent) and all(n.is_Number and abs(n) <= _MAX_EXPONENT for n in numbers):
        exponent = exponent.doit()
    if not exponent.is_Number:  # a tower of numbers is beyond any evaluation
        return all(abs(p.exp) <= 2 for p in exponent.atoms(sympy.Pow) if p.exp.is_Number)
    if base.is_Rational and exponent.is_Integer:
        bits = base.p.bit_length() + base.q.bit_length()
        return bool(bits * abs(exponent) <= 4 * _MAX_RATIONAL_EXPONENT)
    return bool(abs(exponent) <= (_MAX_EXPONENT if base.free_symbols else _MAX_NUMBER_EXPONENT))


@cache
def _coordinate(name: str, point: int) -> Any:
    """Where a symbol is at a point: pseudo-random in [0.75, 1.25), the same in every process."""
    digest = hashlib.sha256(f"{point} {name}".encode("utf-8", "surrogatepass")).digest()
    return sympy.Rational(75_000 + int.from_bytes(digest[:8], "big") % 50_000, 100_003)


def _value_of(term: Any) -> Any:
    """The value of a Sum, a Product or an Integral, within finite limits; None if not certain."""
    if len(term.limits) != 1 or len(term.limits[0]) != 3 or not _is_short(term.function):
        return None
    _, low, high = term.limits[0]
    try:
        is_finite = high - low < _MOST_TERMS and max(abs(low), abs(high)) <= _LARGEST_LIMIT
        value = term.evalf(_SERIES_DIGITS, maxn=_SERIES_WORK) if is_finite else None
        _value(value)
    except (TypeError, ValueError, ArithmeticError, AttributeError):  # a pole, or sympy's limits
        return None
    return value


def _is_short(function: Any) -> bool:
    return all(count < _MOST_NODES for count, _ in enumerate(sympy.preorder_traversal(function)))
