"""Sketches of sympy objects. Imported in the worker process only.

Only what is certain is sketched: elementary functions of real symbols and of numbers of ordinary
size, evaluated exactly as sympy understands them, at points where every symbol is positive and near
1. There the known simplifications hold, and no term is so small that math-verify drops it.
"""

from __future__ import annotations

import cmath
import hashlib
from functools import cache
from math import prod
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy  # type: ignore[import-untyped]
from sympy.core.numbers import (  # type: ignore[import-untyped]
    ImaginaryUnit,
    NumberSymbol,
)

from .sketch import Kind, Sketch

_POINTS = 2
_DIGITS = 25  # of a value; twice of what a comparison needs
_MAX_NODES = 400
_MAX_EXPONENT = 64  # of a symbolic power
_MAX_NUMBER_EXPONENT = 2000  # of a number's power
_INFINITY = {sympy.oo: 1e300 + 0j, -sympy.oo: -1e300 + 0j}  # further away than any finite value
_SYMBOLIC_SIZES = (1e-9, 1e9)  # of a number beside free symbols

_ELEMENTARY: tuple[type, ...] = (
    *(sympy.Integer, sympy.Rational, sympy.Float, NumberSymbol, ImaginaryUnit, sympy.Symbol),
    *(sympy.Add, sympy.Mul, sympy.Pow, sympy.Abs, sympy.exp, sympy.log),
    *(sympy.sin, sympy.cos, sympy.tan, sympy.cot, sympy.sec, sympy.csc),
    *(sympy.asin, sympy.acos, sympy.atan, sympy.sinh, sympy.cosh, sympy.tanh),
)


def sketch_of(formula: Any) -> Sketch | None:
    """The invariants of what math-verify parsed; None where none is certain."""
    if isinstance(formula, sympy.Tuple):
        return Sketch(Kind.TUPLE, parts=_sketches(formula.args))
    if isinstance(formula, sympy.FiniteSet):
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
    return _scalar(formula) if isinstance(formula, sympy.Expr) else None


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


def _scalar(expression: Any) -> Sketch | None:
    if expression in _INFINITY:
        return Sketch(Kind.SCALAR, str(expression), (_INFINITY[expression],) * _POINTS)
    series = expression.atoms(sympy.Sum, sympy.Product, sympy.Integral)
    if series:
        values_of = {term: value_of(term) for term in series if not term.free_symbols}
        expression = expression.xreplace(
            {term: v for term, v in values_of.items() if v is not None}
        )
    symbols = expression.free_symbols
    if not _is_ordinary(expression, bool(symbols)):
        return None
    values = []
    for point in range(_POINTS):
        at = {symbol: _coordinate(symbol.name, point) for symbol in symbols}
        try:
            value = complex(expression.evalf(_DIGITS, subs=at))
        except (TypeError, ValueError, ArithmeticError):  # no number: a pole, or sympy's own limits
            return None
        if not cmath.isfinite(value):
            return None
        values.append(value)
    text = sorted(str(expression).lower().replace("*", "").replace(" ", ""))
    is_symbol = isinstance(expression, sympy.Symbol)
    return Sketch(Kind.SCALAR, "".join(text), tuple(values), is_symbol)


def _is_ordinary(expression: Any, has_symbols: bool) -> bool:
    """Whether all of an expression is elementary, and of a size at which values are certain."""
    for count, node in enumerate(sympy.preorder_traversal(expression)):
        if count >= _MAX_NODES or not isinstance(node, _ELEMENTARY):
            return False
        if isinstance(node, sympy.Symbol) and (node.is_integer or node.is_negative):
            return False
        if isinstance(node, sympy.Pow) and not _is_ordinary_power(node):
            return False
        if has_symbols and isinstance(node, sympy.Number) and not _is_ordinary_number(node):
            return False
    return True


def _is_ordinary_power(power: Any) -> bool:
    base, exponent = power.args
    if not exponent.is_Number:  # a tower of numbers is beyond any evaluation
        return all(abs(p.exp) <= 2 for p in exponent.atoms(sympy.Pow) if p.exp.is_Number)
    return bool(abs(exponent) <= (_MAX_EXPONENT if base.free_symbols else _MAX_NUMBER_EXPONENT))


def _is_ordinary_number(number: Any) -> bool:
    low, high = _SYMBOLIC_SIZES
    return number == 0 or low <= abs(float(number)) <= high


@cache
def _coordinate(name: str, point: int) -> Any:
    """Where a symbol is at a point: pseudo-random in [0.75, 1.25), the same in every process."""
    digest = hashlib.sha256(f"{point} {name}".encode("utf-8", "surrogatepass")).digest()
    return sympy.Rational(75_000 + int.from_bytes(digest[:8], "big") % 50_000, 100_003)


_MOST_TERMS = 1000
_MOST_NODES = 60  # of a term or an integrand, which is evaluated some hundred times
_LARGEST_LIMIT = 1000  # of an integral
_LARGEST_VALUE = 1e12  # of a term or of all: beyond it, it may be what rounding leaves of a pole
_AGREEMENT = 1e-10
_DIVISIONS = (0.5, 0.3819660112501051)
"""Where a range is divided: quadrature of a pole, a jump or a narrow peak depends on it."""
_SMOOTH: tuple[type, ...] = (
    *(sympy.Integer, sympy.Rational, sympy.Float, sympy.NumberSymbol, sympy.Symbol),
    *(sympy.Add, sympy.Mul, sympy.Pow, sympy.exp, sympy.log),
    *(sympy.sin, sympy.cos, sympy.atan, sympy.sinh, sympy.cosh, sympy.tanh),
)


def value_of(term: Any) -> Any:
    """The value of a Sum, a Product or an Integral without free symbols; None if not certain.

    Certain are a few terms, or a smooth integrand whose quadrature does not depend on where the
    range is divided.
    """
    if len(term.limits) != 1 or len(term.limits[0]) != 3 or not _is_smooth(term.function):
        return None
    symbol, low, high = term.limits[0]
    try:
        if isinstance(term, sympy.Integral):
            return _integral(term.function, symbol, low, high)
        return _series(term, symbol, low, high)
    except (TypeError, ValueError, ArithmeticError):  # no number: a pole, or the libraries' limits
        return None


def _is_smooth(function: Any) -> bool:
    for count, node in enumerate(sympy.preorder_traversal(function)):
        if count >= _MOST_NODES or not isinstance(node, _SMOOTH):
            return False
        if isinstance(node, sympy.Pow) and not (node.exp.is_Number and abs(node.exp) <= 64):
            if node.base.free_symbols or not node.base.is_positive or node.base > 100:
                return False  # x**x and towers; 2**k is a power of a plain number
            if node.exp.has(sympy.Pow):
                return False
    return True


def _series(term: Any, symbol: Any, low: Any, high: Any) -> Any:
    if not (low.is_Integer and high.is_Integer and 0 <= high - low < _MOST_TERMS):
        return None
    if max(abs(low), abs(high)) > _LARGEST_LIMIT:
        return None
    values = [complex(term.function.evalf(25, subs={symbol: k})) for k in range(low, high + 1)]
    whole = sum(values) if isinstance(term, sympy.Sum) else prod(values)
    if not all(abs(value) <= _LARGEST_VALUE for value in (*values, whole)):
        return None
    cancelled = isinstance(term, sympy.Sum) and sum(map(abs, values)) > 1e6 * max(1.0, abs(whole))
    return None if cancelled else _number(complex(whole))


def _integral(function: Any, symbol: Any, low: Any, high: Any) -> Any:
    first, last = float(low), float(high)
    if max(abs(first), abs(last)) > _LARGEST_LIMIT:
        return None

    def at(place: Any) -> complex:
        return complex(function.evalf(15, subs={symbol: float(place)}))

    found = []
    for division in _DIVISIONS:
        middle = first + division * (last - first)
        value = complex(mpmath.quad(at, [first, middle, last], maxdegree=5))
        if not abs(value) <= _LARGEST_VALUE:
            return None
        found.append(value)
    one, other = found
    is_certain = abs(one - other) <= _AGREEMENT * max(1.0, abs(one))
    return _number(one) if is_certain else None


def _number(value: complex) -> Any:
    real = sympy.Float(value.real)
    return real if not value.imag else real + sympy.I * sympy.Float(value.imag)
