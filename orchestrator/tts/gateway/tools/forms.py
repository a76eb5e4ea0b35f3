"""The forms in which models write calls of tools, and the schema of a call that must come. Pure.

    Hermes, Qwen   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, once for each call
    Llama 3        {"name": ..., "parameters": {...}}, alone or after <|python_tag|>; one call
    Mistral        [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
    Mistral, new   [TOOL_CALLS]name[ARGS]{...}, once for each call

The chat template holds the form of its model; one that knows none gets Hermes' form, explained in
the system message.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec

from tts.base.errors import ConfigError
from tts.constraints.schema_check import checked_schema

from ..openai.errors import bad_request
from ..openai.messages import CalledFunction, Tool, ToolCall

_CHARS = string.ascii_letters + string.digits
ID_CHARS = 9
"""Letters and digits of a call's id: Mistral's templates take no other number."""


@dataclass(frozen=True)
class ToolForm:
    """How calls stand in a text."""

    kind: str
    """`hermes`, `llama` or `mistral`."""
    opener: str
    closer: str = ""
    arguments: str = "arguments"
    """The name under which a call has its arguments."""
    bare: bool = False
    """Whether an output that begins with a brace is a call, too."""
    parallel: bool = True
    in_template: bool = True
    """Whether the chat template tells the model of its tools; else we do."""
    args_mark: str = ""
    """Text between a name and its arguments, where a call is no JSON object."""

    def write(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
        """Calls as a model writes them."""
        if self.args_mark:
            return "".join(
                f"{self.opener}{name}{self.args_mark}{_json(arguments)}"
                for name, arguments in calls
            )
        bodies = [
            f'{{"name": {_json(name)}, "{self.arguments}": {_json(arguments)}}}'
            for name, arguments in calls
        ]
        if self.kind == "mistral":
            return f"{self.opener}[{', '.join(bodies)}]"
        if self.kind == "llama":
            return "; ".join(bodies)
        return "\n".join(f"{self.opener}\n{body}\n{self.closer}" for body in bodies)


HERMES = ToolForm("hermes", "<tool_call>", "</tool_call>")
LLAMA = ToolForm("llama", "<|python_tag|>", arguments="parameters", bare=True, parallel=False)
MISTRAL = ToolForm("mistral", "[TOOL_CALLS]")
MISTRAL_ARGS = replace(MISTRAL, args_mark="[ARGS]")
OWN = replace(HERMES, in_template=False)
FORMS = (HERMES, LLAMA, MISTRAL, MISTRAL_ARGS, OWN)
_TELLS = re.compile(r"\btools\b")


def form_of(template: str) -> ToolForm:
    """The form of a chat template."""
    if _TELLS.search(template):
        if MISTRAL.opener in template:
            return MISTRAL_ARGS if "[ARGS]" in template else MISTRAL
        if HERMES.opener in template:
            return HERMES
        if LLAMA.opener in template or '"parameters": ' in template:
            return LLAMA
    return OWN


def new_call(name: str, arguments: str) -> ToolCall:
    """A call with an id of its own."""
    own = "".join(secrets.choice(_CHARS) for _ in range(ID_CHARS))
    return ToolCall(own, CalledFunction(name, arguments))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


MAX_CALLS = 8
"""Calls of one message: a model that may always begin another may not end."""


def forced_call(form: ToolForm, tools: Sequence[Tool], *, several: bool) -> tuple[str, str]:
    """The beginning of a call of these tools, and the schema of its rest; raises ApiError."""
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
