"""Values of finite sums, finite products and definite integrals. Imported in the worker only.

Only what is certain has a value: a few terms, or a smooth integrand whose quadrature does not
depend on where the range is divided.
"""

from __future__ import annotations

from math import prod
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy  # type: ignore[import-untyped]

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
    """The value of a Sum, a Product or an Integral without free symbols; None if not certain."""
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
