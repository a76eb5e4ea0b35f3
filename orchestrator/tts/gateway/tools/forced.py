"""Outputs that must call a tool, as the schema of a call. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from tts.base.errors import ConfigError
from tts.constraints.schema_check import checked_schema

from ..openai.errors import bad_request
from ..openai.messages import Tool
from .forms import ToolForm

MAX_CALLS = 8
"""Calls of one message: a model that may always begin another may not end."""


def forced_call(form: ToolForm, tools: Sequence[Tool], *, several: bool) -> tuple[str, str]:
    """How one of the tools is called, or several times where calls are a list; raises ApiError.

    The beginning of the call, with which the prompt ends, and the schema of what follows it.
    """
    arguments = {f"tool{place}": _arguments(tool, place) for place, tool in enumerate(tools)}
    calls = [_call(form, tool, f"#/$defs/tool{place}") for place, tool in enumerate(tools)]
    schema: dict[str, Any] = {"anyOf": calls}
    prefix = form.opener
    if form.args_mark and len(tools) == 1:
        prefix += f"{tools[0].function.name}{form.args_mark}"
        schema = {"$ref": "#/$defs/tool0"}
    elif form.kind == "mistral":
        max_calls = MAX_CALLS if several else 1
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": max_calls}
    else:
        prefix = f"{form.opener}\n" if form.closer else ""
    return prefix, json.dumps({**schema, "$defs": arguments})


def _call(form: ToolForm, tool: Tool, arguments: str) -> dict[str, Any]:
    properties = {
        "name": {"const": tool.function.name},
        form.arguments: {"$ref": arguments},
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _arguments(tool: Tool, place: int) -> Any:
    """The schema of a tool's arguments, which refers to itself at its place among others."""
    function = tool.function
    schema = {"type": "object", "additionalProperties": False}
    if function.parameters is not None:
        schema = function.parameters
    try:
        if schema.get("type", "object") != "object":
            raise ConfigError("The schema of arguments must be of the type object.")
        checked = _checked(json.dumps(schema), strict=function.strict is True)
    except ConfigError as error:
        raise bad_request(
            f"The parameters of {function.name}: {error}", f"tools[{place}].function.parameters"
        ) from None
    if not checked.keys() & {"$ref", "anyOf", "oneOf", "allOf"}:
        checked = {**checked, "type": "object"}
    return _moved(checked, f"#/$defs/tool{place}")


@lru_cache(maxsize=256)
def _checked(text: str, *, strict: bool) -> dict[str, Any]:
    return checked_schema(text, strict=strict)


def _moved(schema: Any, to: str) -> Any:
    """A schema whose references are right where it is a part of another."""
    if isinstance(schema, list):
        return [_moved(each, to) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: f"{to}{value[1:]}" if name == "$ref" and isinstance(value, str) else _moved(value, to)
        for name, value in schema.items()
    }


def plain_tools(tools: Sequence[Tool]) -> str:
    """The functions that can be called, as JSON, one to a line."""
    return "\n".join(msgspec.json.encode(tool.plain()["function"]).decode() for tool in tools)
