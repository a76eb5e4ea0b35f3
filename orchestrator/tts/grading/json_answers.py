"""Answers that are JSON: objects, and arrays with texts in them. Pure.

They are equal where their values are: numbers as numbers, members in any order. Arrays of numbers
alone stay mathematics, where `[1, 2]` may be an interval or a row.
"""

from __future__ import annotations

import json
from decimal import Context, Decimal
from typing import Any, NoReturn

# exact for every number that an answer of some thousand characters can spell
_EXACT = Context(prec=4000, Emax=999_999, Emin=-999_999)


def json_form(answer: str) -> str | None:
    """The normal form of a JSON answer; None for an answer that is no such JSON."""
    text = answer.strip()
    if text[:1] not in ("{", "[") or '"' not in text:
        return None
    try:
        value = json.loads(
            text,
            parse_float=_number,
            parse_int=_number,
            parse_constant=_refuse,
            object_pairs_hook=_members,
        )
        return _written(value)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def _number(text: str) -> Decimal:
    number = _EXACT.normalize(_EXACT.create_decimal(text))
    return number if number else abs(number)  # there is one zero


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is given twice")
    return members


def _written(value: Any) -> str:
    if isinstance(value, dict):
        members = (f"{json.dumps(name)}:{_written(value[name])}" for name in sorted(value))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)
