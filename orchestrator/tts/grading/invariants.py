"""Sketches of sympy objects. Imported in the worker process only.

Only what is certain is sketched: elementary functions of real symbols and of numbers, evaluated
exactly as sympy understands them, at points where every symbol is positive and near 1. There the
known simplifications hold. A decimal number is the fraction that its digits say.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

import sympy  # type: ignore[import-untyped]
from sympy.core.function import AppliedUndef  # type: ignore[import-untyped]
from sympy.core.numbers import (  # type: ignore[import-untyped]
    ImaginaryUnit,
    NumberSymbol,
)
from sympy.logic.boolalg import Boolean  # type: ignore[import-untyped]

from .sketch import DIGITS, Kind, Sketch, Value

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
    return expression.xreplace(
        {**fractions, **(values or {})}
    )  # at once: sympy rounds what it builds


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
        if isinstance(node, sympy.factorial) and not _is_small_factorial(node):
            return False
    return True


def _is_small_factorial(node: Any) -> bool:
    number = node.args[0]
    return bool(number.is_Integer and 0 <= number <= _MAX_FACTORIAL)


def _is_small_power(power: Any) -> bool:
    return all(number.is_Number and abs(number) <= _MAX_EXPONENT for number in power.args)


def _is_ordinary_power(power: Any) -> bool:
    base, exponent = power.args
    if _is_rational(exponent) and all(map(_is_small_power, exponent.atoms(sympy.Pow))):
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
