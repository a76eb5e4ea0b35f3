"""The form that a request asks of its answer, as the guide of an output. Pure.

response_format, guided_json, ... ──► OutputForm ──► guide: of plain generation
└───► answer_regex: what a search holds its boxes to
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from tts.base.errors import ConfigError
from tts.build.spec import Deployment
from tts.constraints import answer_constraint
from tts.constraints.regex import parse_regex
from tts.constraints.regular import Choice, literal, rules_of
from tts.constraints.schema import whole_rules
from tts.constraints.schema_check import checked_schema, require_light
from tts.constraints.step_grammar import whole_grammar
from tts.engines.generate_request import MAX_GUIDE_BYTES
from tts.engines.wire import EBNF, JSON_SCHEMA, Guide

from ..openai.errors import bad_request
from ..openai.requests import Request, ResponseFormat, StructuredOutputs

MAX_OPTIONS = 4096
"""Most texts that `guided_choice` may name."""


@dataclass
class OutputForm:
    """The form of an output."""

    param: str
    """The field of the request that asks for it."""
    guide: Guide
    regex: str | None = None
    """The regular expression that says the form, if one does."""

    @cached_property
    def in_box(self) -> dict[str, str]:
        """The parameter of a search that holds its boxes to the form, if they can hold it."""
        try:
            answer_constraint(self.regex, None, "\n\n")
        except ConfigError:
            return {}
        return {} if self.regex is None else {"answer_regex": self.regex}


_FIELDS = ("response_format", "guided_json", "guided_regex", "guided_choice", "structured_outputs")


def asks_form(request: Request) -> bool:
    """Whether a request has a field that says a form."""
    return any(getattr(request, name) is not None for name in _FIELDS)


def output_form(request: Request) -> OutputForm | None:
    """The form that a request asks for; None: any. Raises ApiError."""
    forms: list[tuple[str, str, Any]] = []
    if request.response_format is not None:
        forms += _of_response_format(request.response_format)
    for name in ("guided_json", "guided_regex", "guided_choice"):
        if (value := getattr(request, name)) is not None:
            forms.append((name, name[7:], value))
    if request.structured_outputs is not None:
        forms += _of_structured_outputs(request.structured_outputs)
    if not forms:
        return None
    if len(forms) > 1:
        raise bad_request(f"{forms[0][0]} and {forms[1][0]} both say a form.", forms[1][0])
    ((param, kind, value),) = forms
    if request.ignore_eos:
        raise bad_request("ignore_eos and a form exclude each other: it says the end.", param)
    try:
        return OutputForm(param, _guide(kind, value), value if kind == "regex" else None)
    except ConfigError as error:
        raise bad_request(str(error), param) from None


def require_guides(deployment: Deployment, param: str) -> None:
    """Raise ApiError where the engine holds no output to a form; `param` asks for one."""
    if not deployment.generator.guided_decoding:
        raise bad_request(
            f"{param} is not supported here: the generator of {deployment.name} is served without "
            "guided decoding (generator.guided_decoding in the deployment).",
            param,
            "unsupported_parameter",
        )


def _of_response_format(option: ResponseFormat) -> list[tuple[str, str, Any]]:
    """The field that says a form, the kind of form, and its value; nothing for any text."""
    if option.type == "text":
        return []
    if option.type == "json_object":
        if option.schema is None:
            return [("response_format", "object", None)]
        return [("response_format.schema", "json", option.schema)]  # as llama.cpp has it
    named_schema = option.json_schema
    if named_schema is None or named_schema.schema is None:
        raise bad_request(
            "response_format of the type json_schema needs json_schema.schema.",
            "response_format.json_schema",
        )
    kind = "json" if named_schema.strict else "loose json"
    return [("response_format.json_schema.schema", kind, named_schema.schema)]


def _of_structured_outputs(option: StructuredOutputs) -> list[tuple[str, str, Any]]:
    """The fields that say a form, the kind of form, and its value."""
    forms = [
        (f"structured_outputs.{name}", name, value)
        for name, value in msgspec.structs.asdict(option).items()
        if value is not None
    ]
    if not forms:
        raise bad_request("structured_outputs needs json, regex or choice.", "structured_outputs")
    return forms


def _guide(kind: str, value: Any) -> Guide:
    if kind == "object":
        return schema_guide('{"type": "object"}')
    if kind == "regex":
        return Guide(EBNF, whole_grammar(rules_of(parse_regex(value), "root")))
    if kind == "choice":
        return _choice(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return _checked_guide(text, strict=kind == "json")


def _choice(texts: Sequence[str]) -> Guide:
    characters = sum(map(len, texts))
    if len(texts) > MAX_OPTIONS or characters > MAX_GUIDE_BYTES:
        raise ConfigError(
            f"There are {len(texts):,} choices of {characters:,} characters in all; at most "
            f"{MAX_OPTIONS:,} of {MAX_GUIDE_BYTES:,}."
        )
    return Guide(EBNF, whole_grammar({"root": Choice(tuple(map(literal, texts)))}))


@lru_cache(maxsize=64)  # programs ask for the same few again and again
def _checked_guide(text: str, *, strict: bool) -> Guide:
    return schema_guide(json.dumps(checked_schema(text, strict=strict)))


@lru_cache(maxsize=64)
def schema_guide(text: str) -> Guide:
    """How an engine is held to a schema that passed its check.

    Engines compile schemas themselves, with any white space, of which a small model may write
    without end. So what we can read is the grammar of JSON on one line; the rest is left to them.
    Raises ConfigError where that takes them too long.
    """
    schema = json.loads(text)
    try:
        return Guide(EBNF, whole_grammar(whole_rules(schema)))
    except ConfigError:
        require_light(schema)
        return Guide(JSON_SCHEMA, text)
