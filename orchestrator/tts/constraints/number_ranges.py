"""Decimal numbers within bounds as regular languages. Pure.

A number is written as JSON has it, without an exponent: `12`, `-0.5`. Its fraction is compared
digit by digit with that of a bound, as if it went on with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from .regular import EMPTY, Choice, Node, Repeat, Seq, chars, literal, optional

MOST_DIGITS = 15
"""Digits before the point, and after it: what a double holds exactly."""
_LARGEST = 10**MOST_DIGITS - 1
_DIGIT = chars((ord("0"), ord("9")))
_ANY = Repeat(_DIGIT, 0, MOST_DIGITS)
_ZEROS = Repeat(literal("0"), 0, MOST_DIGITS)
_POSITIVE = Seq((Repeat(literal("0"), 0, MOST_DIGITS - 1), chars((49, 57)), _ANY))


@dataclass(frozen=True)
class Bound:
    """Where a range ends; `open`: the bound itself is outside."""

    value: Decimal
    open: bool = False


def integers(low: int | None, high: int | None) -> Node | None:
    """The integers from `low` to `high`, of at most `MOST_DIGITS` digits; None if there is none."""
    least = max(-_LARGEST, -_LARGEST if low is None else low)
    most = min(_LARGEST, _LARGEST if high is None else high)
    options: list[Node] = []
    if least < 0 and least <= most:
        options.append(Seq((literal("-"), _naturals(max(1, -most), -least))))
    if most >= 0 and least <= most:
        options.append(_naturals(max(0, least), most))
    return Choice(tuple(options)) if options else None


def numbers(low: Bound | None, high: Bound | None) -> Node | None:
    """The numbers within two bounds; None if there is none."""
    top = Bound(Decimal(_LARGEST))
    positive = _magnitudes(low if low and low.value >= 0 else Bound(Decimal(0)), high or top)
    lowest = Bound(Decimal(0), open=True)
    if high and high.value <= 0:
        lowest = Bound(-high.value, high.open or high.value == 0)
    negative = _magnitudes(lowest, Bound(-low.value, low.open) if low else top)
    options = [positive] if positive else []
    if negative:
        options.append(Seq((literal("-"), negative)))
    return Choice(tuple(options)) if options else None


def _magnitudes(low: Bound, high: Bound) -> Node | None:
    """Numbers without a sign within bounds, the lower of which is not negative."""
    if high.value < low.value or (high.value == low.value and (high.open or low.open)):
        return None
    first, last = int(low.value), min(int(high.value), _LARGEST)
    above, below = _fraction(low.value), _fraction(high.value)
    options: list[Node | None] = []
    if first == last:
        options.append(_with(first, _between(above, below, low.open, high.open)))
    else:
        options.append(_with(first, _between(above, None, low.open, False)))
        if last - first > 1:
            options.append(Seq((_naturals(first + 1, last - 1), optional(_fractions(_ANY)))))
        options.append(_with(last, _between("", below, False, high.open)))
    found = tuple(option for option in options if option)
    return Choice(found) if found else None


def _fraction(value: Decimal) -> str:
    """The digits after the point, without zeros at the end."""
    return f"{value:f}".partition(".")[2].rstrip("0")


def _with(whole: int, fraction: Node | None) -> Node | None:
    """An integer with one of the fractions; the empty fraction is written without a point."""
    return Seq((literal(str(whole)), fraction)) if fraction else None


def _fractions(digits: Node) -> Node:
    return Seq((literal("."), _DIGIT, digits))


def _between(low: str, high: str | None, low_open: bool, high_open: bool) -> Node | None:
    """The point and the digits of fractions within bounds; `high` None: of any size."""
    options: list[Node] = []
    if not low and not low_open and not (high == "" and high_open):
        options.append(EMPTY)  # the integer itself
    if digits := _digits(low, high, low_open, high_open):
        options.append(Seq((literal("."), digits)))
    return Choice(tuple(options)) if options else None


def _digits(low: str, high: str | None, low_open: bool, high_open: bool) -> Node | None:
    """Digits, at least one, which are within bounds as those of fractions.

    A bound is as long as it has digits; "" is zero, which the digits read so far have equalled.
    """
    if not low and high is None:
        return _POSITIVE if low_open else Seq((_DIGIT, _ANY))
    if not low and not high:
        return None if low_open or high_open else Seq((literal("0"), _ZEROS))
    first, last = int(low[:1] or 0), 9 if high is None else int(high[:1] or 0)
    if first > last:
        return None
    options: list[Node] = []

    def add(digit: int, low_rest: str, high_rest: str | None, opens: tuple[bool, bool]) -> None:
        after = _digits(low_rest, high_rest, *opens)
        ends = not low_rest and not opens[0] and not (high_rest == "" and opens[1])
        tail = after if not ends else (EMPTY if after is None else optional(after))
        if tail is not None:
            options.append(Seq((literal(str(digit)), tail)))

    if high is not None and first == last:
        add(first, low[1:], high[1:], (low_open, high_open))
    else:
        add(first, low[1:], None, (low_open, False))
        between = range(first + 1, last + (high is None))
        if between:
            options.append(Seq((chars((48 + between[0], 48 + between[-1])), _ANY)))
        if high is not None:
            add(last, "", high[1:], (False, high_open))
    return Choice(tuple(options)) if options else None


def _naturals(low: int, high: int) -> Node:
    """The integers from `low`, which is at least 0, to `high`, without leading zeros."""
    options = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        options.append(_same_length(str(first), str(min(high, 10**length - 1))))
    return Choice(tuple(options))


def _same_length(low: str, high: str) -> Node:
    if not low:
        return EMPTY
    rest = len(low) - 1
    if set(low) == {"0"} and set(high) == {"9"}:
        return Repeat(_DIGIT, len(low), len(low))
    first, last = ord(low[0]), ord(high[0])
    if first == last:
        return Seq((chars((first, first)), _same_length(low[1:], high[1:])))
    options: list[Node] = []
    if set(low[1:]) - {"0"}:
        options.append(Seq((chars((first, first)), _same_length(low[1:], "9" * rest))))
        first += 1
    ends_below = bool(set(high[1:]) - {"9"})
    if first <= last - ends_below:
        whole = chars((first, last - ends_below))
        options.append(Seq((whole, Repeat(_DIGIT, rest, rest))) if rest else whole)
    if ends_below:
        options.append(Seq((chars((last, last)), _same_length("0" * rest, high[1:]))))
    return Choice(tuple(options))
