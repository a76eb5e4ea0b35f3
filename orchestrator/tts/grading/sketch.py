"""What tells two parsed answers apart without comparing them in full. Pure; knows no sympy.

A sketch holds invariants of an answer: values that equal answers must share. Answers whose sketches
differ are certainly different, and numbers whose values agree in all digits are the same; the
others remain to be compared. Answers without certain invariants (inequalities, indefinite
integrals) have no sketch and are never separated.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from enum import StrEnum

DIGITS = 50  # of a value
_AMONG_VALUES = Context(prec=DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)
_ROUNDING = Decimal("1e-40")  # of values, relative; 1e-34 beside 1 still counts
# math-verify rounds to 6 decimals where one side is a decimal number; ten times that stays clear.
_ABSOLUTE_TOLERANCE = Decimal("1e-5")
_RELATIVE_TOLERANCE = Decimal("1e-8")
_SMALL = Decimal("1e-3")  # below it six decimals say little
_FEWEST_ROUNDED, _MOST_ROUNDED = 6, 12


class Kind(StrEnum):
    """The kind of an answer, as far as sketches know."""

    SCALAR = "scalar"  # a number or an expression with free symbols
    TUPLE = "tuple"
    SET = "set"  # finite
    INTERVAL = "interval"
    UNION = "union"  # of intervals, mostly
    MATRIX = "matrix"
    ASSIGNMENT = "assignment"  # "x=5": a symbol equals a scalar without that symbol
    PERCENTAGE = "percentage"  # the number before the sign, or a hundredth of it


_SINGLE = {Kind.SCALAR, Kind.MATRIX}  # as good as the set that holds nothing else
_RANGES = {Kind.INTERVAL, Kind.UNION}

Value = tuple[Decimal, Decimal]
"""The real and the imaginary part; of any size, which a float is not."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """Invariants of one parsed answer.

    A scalar has its `values` at fixed points and, as `mark`, the sorted characters of its text. A
    rational number has a digest as well, `exact`, which no other one has. `is_rounded` says that
    decimals, or a quadrature, may stand for a number near them. An interval is marked with its
    brackets, a matrix with its shape, an assignment of a real polynomial with its symbol. `parts`
    are elements, end points or, of an assignment, the right-hand side.
    """

    kind: Kind
    mark: str = ""
    values: tuple[Value, ...] = ()
    is_symbol: bool = False
    exact: str = ""
    is_rounded: bool = False
    parts: tuple[Sketch | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """What math-verify read in an answer: normalised texts, and perhaps one formula.

    Texts are compared with texts, formulas with formulas. `sketch` is that of the formula; None
    where nothing is certain about it.
    """

    texts: tuple[str, ...]
    has_formula: bool
    sketch: Sketch | None


def are_separated(a: Parsed, b: Parsed) -> bool:
    """True if math-verify certainly calls `a` and `b` different, whichever is the reference."""
    if not set(a.texts).isdisjoint(b.texts):
        return False
    if not (a.has_formula and b.has_formula):
        return True
    return separated(a.sketch, b.sketch)


def separated(a: Sketch | None, b: Sketch | None) -> bool:
    """True if what the two were made of is certainly different."""
    if a is None or b is None:
        return False
    kinds = {a.kind, b.kind}
    if kinds == {Kind.PERCENTAGE}:
        return separated(a.parts[0], b.parts[0])
    if Kind.PERCENTAGE in kinds:
        sign, other = (a, b) if a.kind is Kind.PERCENTAGE else (b, a)
        return all(separated(part, other) for part in sign.parts)
    if Kind.ASSIGNMENT in kinds:
        return _assignments_separated(a, b)
    if kinds == {Kind.SCALAR}:
        return _scalars_separated(a, b)
    if len(kinds) == 1 and a.kind in (Kind.MATRIX, Kind.INTERVAL, Kind.TUPLE):
        alike = a.mark == b.mark and len(a.parts) == len(b.parts)
        return not alike or any(map(separated, a.parts, b.parts))
    if not kinds.isdisjoint(_RANGES):
        return _ranges_separated(a, b)
    return kinds <= _SINGLE or _collections_separated(a, b)


def _scalars_separated(a: Sketch, b: Sketch) -> bool:
    # A symbol is compared by its name: "abc" is the product a*b*c, "e" is Euler's number.
    if (a.is_symbol or b.is_symbol) and a.mark == b.mark:
        return False
    if a.exact and b.exact and not (a.is_rounded or b.is_rounded):
        return a.exact != b.exact
    apart = _rounded_apart if a.is_rounded or b.is_rounded else _apart
    return any(apart(x, y) for x, y in zip(a.values, b.values, strict=True))


def same(a: Sketch | None, b: Sketch | None) -> bool:
    """True if two that are not separated are certainly one: scalars, matrices, percentages."""
    if a and b and Kind.PERCENTAGE in (a.kind, b.kind):
        a_parts, b_parts = (s.parts if s.kind is Kind.PERCENTAGE else (s,) for s in (a, b))
        return any(same(x, y) for x in a_parts for y in b_parts)
    if a and b and a.kind is b.kind is Kind.MATRIX:
        return all(map(same, a.parts, b.parts))
    if not (a and b and a.values and b.values):
        return False
    if a.exact and a.exact == b.exact:
        return True
    is_constant = a.values[0] == a.values[1] and b.values[0] == b.values[1]
    is_rounded = (a.is_rounded or b.is_rounded) and _size(a.values[0], b.values[0]) >= _SMALL
    return is_constant and not is_rounded


def _apart(x: Value, y: Value) -> bool:
    return _distance(x, y) > _AMONG_VALUES.multiply(_ROUNDING, _size(x, y))


def _rounded_apart(x: Value, y: Value) -> bool:
    """Whether decimals do not stand for one number.

    Six decimals count, as for math-verify. Small numbers are compared to the digits of the shorter
    one, if it has six: 1.66667e-6 is 1/600000, and 1.6e-19 is not 1.602e-19.
    """
    size = _size(x, y)
    if size >= _SMALL:
        tolerance = _AMONG_VALUES.fma(_RELATIVE_TOLERANCE, size, _ABSOLUTE_TOLERANCE)
        return _distance(x, y) > tolerance
    digits = min(_MOST_ROUNDED, *(max(map(_digits, value)) for value in (x, y)))
    if digits < _FEWEST_ROUNDED:
        return _apart(x, y)
    places = digits - 1 - size.adjusted()
    return any(
        _AMONG_VALUES.to_integral_value(_AMONG_VALUES.scaleb(p, places))
        != _AMONG_VALUES.to_integral_value(_AMONG_VALUES.scaleb(q, places))
        for p, q in zip(x, y, strict=True)
    )


def _digits(number: Decimal) -> int:
    return len(_AMONG_VALUES.normalize(number).as_tuple().digits)


def _size(*values: Value) -> Decimal:
    return max(part.copy_abs() for value in values for part in value)


def _distance(x: Value, y: Value) -> Decimal:
    return max(_AMONG_VALUES.subtract(p, q).copy_abs() for p, q in zip(x, y, strict=True))


def _assignments_separated(a: Sketch, b: Sketch) -> bool:
    """An assignment answers a value by its right-hand side.

    Two are compared by their solutions as well, which differ for certain where the same symbol is
    to be equal to polynomials that differ.
    """
    if a.kind is b.kind and (a.mark != b.mark or not a.mark):
        return False
    a_value, b_value = (s.parts[0] if s.kind is Kind.ASSIGNMENT else s for s in (a, b))
    return separated(a_value, b_value)


def _ranges_separated(a: Sketch, b: Sketch) -> bool:
    """A set with infinitely many elements and something finite; but "(1,2)" may mean a pair."""
    infinite, finite = (a, b) if a.kind in _RANGES else (b, a)
    if finite.kind in _RANGES or not _is_infinite(infinite):
        return False
    may_be_a_pair = infinite.mark == "()" and finite.kind not in _SINGLE and len(finite.parts) == 2
    return not may_be_a_pair or _collections_separated(infinite, finite)


def _is_infinite(range_: Sketch | None) -> bool:
    """Whether it holds an interval whose end points differ."""
    if range_ is None:
        return False
    if range_.kind is Kind.UNION:
        return any(map(_is_infinite, range_.parts))
    return range_.kind is Kind.INTERVAL and separated(*range_.parts)


def _collections_separated(a: Sketch, b: Sketch) -> bool:
    """Whether some element of one equals no element of the other."""
    a_parts, b_parts = (s.parts if s.kind not in _SINGLE else (s,) for s in (a, b))
    return any(all(separated(x, y) for y in b_parts) for x in a_parts) or any(
        all(separated(x, y) for x in a_parts) for y in b_parts
    )
