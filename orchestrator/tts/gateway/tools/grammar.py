"""Guides of outputs that must call a tool, or that call tools with arguments that obey. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from tts.build.errors import ConfigError
from tts.constraints.grammar import ANY, ROOT, Rules, guide_text, renamed, text_before
from tts.constraints.json_grammar import json_rules
from tts.constraints.regular import (
    EMPTY,
    Choice,
    Node,
    Ref,
    Repeat,
    Seq,
    chars_of,
    literal,
    optional,
    without,
)

from ..openai.errors import bad_request
from ..openai.tools import Tool
from .forms import ToolForm

MAX_CALLS = 8
"""Calls of one message that a grammar allows: a model that may always begin another may not end."""


@dataclass(frozen=True)
class ForcedCall:
    """How an output is made to be a call."""

    prefix: str
    """What the prompt ends with: the beginning of the call."""
    guide: str


def forced_call(form: ToolForm, tools: Sequence[Tool], *, several: bool) -> ForcedCall:
    """The guide under which one of the tools is called, or several times; raises ApiError."""
    rules = _arguments(tools)
    if form.args_mark and len(tools) == 1:
        rules[ROOT] = Ref(_rule(0))
        return ForcedCall(f"{form.opener}{tools[0].function.name}{form.args_mark}", _guide(rules))
    rules["call"] = _call(form, tools)
    several = several and form.parallel
    if form.kind == "mistral":
        rules[ROOT] = Seq((literal("["), _series(", ", several), literal("]")))
        return ForcedCall(form.opener, _guide(rules))
    if form.kind == "llama":
        rules[ROOT] = Ref("call")
        return ForcedCall("", _guide(rules))
    rules[ROOT] = Seq((_series(_between(form), several), literal(f"\n{form.closer}")))
    return ForcedCall(f"{form.opener}\n", _guide(rules))


def free_guide(
    form: ToolForm, tools: Sequence[Tool], *, several: bool, answer: Rules | None = None
) -> str | None:
    """The guide of an output that calls tools with valid arguments, or is something else.

    `answer` is the form of an output that calls none; without it that is free text. None for a form
    whose calls begin with a token that no grammar holds. Raises ApiError.
    """
    if form.kind == "mistral":
        return None
    rules = {**_arguments(tools), "call": _call(form, tools)}
    several = several and form.parallel
    calls: Node = Ref("call")
    if form.kind == "hermes":
        calls = Seq((literal("\n"), _series(_between(form), several), literal(f"\n{form.closer}")))
    if answer is not None:
        rules |= renamed(answer, "answer")
        begin = EMPTY if form.kind == "llama" else literal(form.opener)
        rules[ROOT] = Choice((Ref(f"answer{ROOT}"), Seq((begin, calls))))
    elif form.kind == "llama":
        free = Seq((without(ANY, chars_of("{ \n\r\t")), Repeat(ANY, 0, None)))
        rules[ROOT] = Choice((calls, optional(free)))
    else:
        rules |= text_before((form.opener,), ROOT, calls)
    return _guide(rules)


def _between(form: ToolForm) -> str:
    return f"\n{form.closer}\n{form.opener}\n"


def _series(between: str, several: bool) -> Node:
    more = Repeat(Seq((literal(between), Ref("call"))), 0, MAX_CALLS - 1)
    return Seq((Ref("call"), more)) if several else Ref("call")


def _call(form: ToolForm, tools: Sequence[Tool]) -> Node:
    options = [
        Seq(
            (
                literal(f'"{tool.function.name}", "{form.arguments}": '),
                Ref(_rule(place)),
                literal("}"),
            )
        )
        for place, tool in enumerate(tools)
    ]
    return Seq((literal('{"name": '), Choice(tuple(options))))


def _rule(place: int) -> str:
    return f"tool{place}{ROOT}"


def _arguments(tools: Sequence[Tool]) -> Rules:
    """The rules of the arguments of each tool, the first of them `_rule(place)`."""
    rules: Rules = {}
    for place, tool in enumerate(tools):
        function = tool.function
        try:
            if function.parameters is None:
                found: Rules = {ROOT: literal("{}")}
            else:
                text = json.dumps(function.parameters)
                found = _schema_rules(text, function.strict is True)
        except ConfigError as error:
            raise bad_request(
                f"The parameters of {function.name}: {error}", f"tools[{place}].function.parameters"
            ) from None
        rules |= renamed(found, f"tool{place}")
    return rules


@lru_cache(maxsize=256)
def _schema_rules(text: str, strict: bool) -> Rules:
    schema = json.loads(text)
    if schema.get("type", "object") != "object":
        raise ConfigError("The schema of arguments must be of the type object.")
    if not schema.keys() & {"$ref", "anyOf", "oneOf", "allOf"}:
        schema = {**schema, "type": "object"}
    return json_rules(schema, strict=strict)


def _guide(rules: Rules) -> str:
    try:
        return guide_text(rules)
    except ConfigError as error:
        raise bad_request(str(error), "tools") from None


def plain_tools(tools: Sequence[Tool]) -> str:
    """The functions that can be called, as JSON, one to a line."""
    return "\n".join(msgspec.json.encode(tool.plain()["function"]).decode() for tool in tools)
