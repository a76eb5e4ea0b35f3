"""A mistake in a deployment file, explained: its place, its value, what is allowed."""

from __future__ import annotations

from typing import Any, TypeGuard, get_args

from pydantic import BaseModel, ValidationError

from .deployment import Deployment

MAX_LINES = 20
"""Mistakes that one error lists."""


def explain(error: ValidationError, within: str = "") -> str:
    """One line per problem: the field's path (below `within`), its value, and what is allowed."""
    details = error.errors()
    lines = [f"  {_explain_one(detail, within)}" for detail in details[:MAX_LINES]]
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


def _explain_one(detail: Any, within: str) -> str:
    where = ".".join([within] * bool(within) + [f"{part!s:.100}" for part in detail["loc"]])
    value, kind = detail["input"], str(detail["type"])
    if kind == "extra_forbidden":
        return f"{where} = {value!r:.200}: unknown field; allowed here: {_fields_at(detail)}"
    known = _REASONS.get(kind)
    reason = known.format(**detail.get("ctx", {})) if known else str(detail["msg"])
    if kind == "string_type" and isinstance(value, bool):
        reason += "; put it in quotes, as YAML reads Yes and No as true and false"
    if kind == "literal_error":
        reason = reason.replace(" or ", ", ").replace("'", "")
    if kind == "missing" or isinstance(value, (dict, BaseModel)):
        return f"{where}: {reason}" if where else reason  # the reason names the fields it is about
    return f"{where} = {value!r:.200}: {reason}"


def _fields_at(detail: Any) -> str:
    model: type[BaseModel] = Deployment
    for part in detail["loc"][:-1]:
        annotation = model.model_fields[str(part)].annotation
        models = (a for a in (annotation, *get_args(annotation)) if _is_model(a))
        if (found := next(models, None)) is None:
            return "nothing"
        model = found
    return ", ".join(model.model_fields)


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
