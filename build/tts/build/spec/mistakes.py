"""A mistake in what a model was to be made of, explained: its place, its value, what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

MAX_LINES = 20
"""Mistakes that one error lists."""
MOST_SHOWN = 200
"""Characters of a value in an error."""


def explain(error: ValidationError, model: type[BaseModel], within: str = "") -> str:
    """One line per problem: the field's path (below `within`), its value, and what is allowed.

    `model` is what failed to be made: a pydantic error does not say.
    """
    details = error.errors()
    lines = [f"  {_explain_one(detail, model, within)}" for detail in details[:MAX_LINES]]
    if len(details) > MAX_LINES:
        lines.append(f"  and {len(details) - MAX_LINES:,} more")
    return "\n".join(lines)


_REASONS = {
    "literal_error": "allowed: {expected}",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "invalid_key": "the name of a field must be a text",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must match {pattern}",
    "path_type": "must be a path",
    "model_type": "must be a mapping of fields",
    "dict_type": "must be a mapping of fields",
    "missing": "this field is required",
    "value_error": "{error}",
}


def _explain_one(detail: Any, model: type[BaseModel], within: str) -> str:
    where = ".".join([within] * bool(within) + [f"{part!s:.100}" for part in detail["loc"]])
    value, kind = detail["input"], str(detail["type"])
    if kind == "extra_forbidden":
        allowed = ", ".join(_fields_at(model, detail["loc"][:-1])) or "nothing"
        return f"{where} = {_shown(value)}: unknown field; allowed here: {allowed}"
    known = _REASONS.get(kind)
    reason = known.format(**detail.get("ctx", {})) if known else str(detail["msg"])
    if kind == "string_type" and isinstance(value, bool):
        reason += "; put it in quotes, as YAML reads Yes and No as true and false"
    if kind == "literal_error":
        reason = reason.replace(" or ", ", ").replace("'", "")
    if kind == "missing" or isinstance(value, (dict, BaseModel)):
        return f"{where}: {reason}" if where else reason  # the reason names the fields it is about
    return f"{where} = {_shown(value)}: {reason}"


def _shown(value: object) -> str:
    """A value as it was written; a long one up to the last word that fits."""
    text = repr(value)
    if len(text) <= MOST_SHOWN:
        return text
    cut = text[:MOST_SHOWN]
    return f"{cut.rpartition(' ')[0] or cut}..."


def _fields_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The fields of whatever models may stand at a place below `model`."""
    models = [model]
    for part in place:
        fields = [each.model_fields[part] for each in models if part in each.model_fields]
        if fields:  # otherwise an item of a list, a key, or which one of a union was tried
            models = [each for field in fields for each in _models_in(field.annotation)]
    return list(dict.fromkeys(name for each in models for name in each.model_fields))


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
