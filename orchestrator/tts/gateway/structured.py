"""The form that a request asks of its answer, as a grammar of the output. Pure.

response_format, guided_json, ... ──► OutputForm ──► guide: of plain generation
└───► answer: what a search holds its boxes to
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from tts.build.errors import ConfigError
from tts.build.spec import Deployment
from tts.constraints import answer_constraint
from tts.constraints.grammar import MAX_GUIDE_BYTES, ROOT, Rules, guide_text
from tts.constraints.json_grammar import inlined, json_object_rules, json_rules
from tts.constraints.regex import parse_regex
from tts.constraints.regular import Choice, literal

from .openai.errors import bad_request
from .openai.formats import ResponseFormat, StructuredOutputs
from .openai.requests import Request


@dataclass
class OutputForm:
    """The form of an output."""

    param: str
    """The field of the request that asks for it."""
    rules: Rules
    guide: str
    regex: str | None = None
    """The regular expression that says the form, if one does."""
    schema: str | None = None
    """The JSON schema, as text."""

    @cached_property
    def answer(self) -> dict[str, str]:
        """The parameter of a search that holds its answers to the form, if a box can hold them all.

        Large forms take a while to check.
        """
        if self.regex is not None and _fits_box(self.regex, None):
            return {"answer_regex": self.regex}
        if self.schema is not None and (boxed := _boxed(self.schema)):
            return {"answer_schema": boxed}
        return {}


def output_form(request: Request) -> OutputForm | None:
    """The form that a request asks for; None: any. Raises ApiError."""
    asked: list[tuple[str, str, Any]] = []
    if request.response_format is not None:
        asked += _of_response_format(request.response_format)
    options = {
        "guided_json": request.guided_json,
        "guided_regex": request.guided_regex,
        "guided_choice": request.guided_choice,
    }
    asked += [(name, name[7:], value) for name, value in options.items() if value is not None]
    if request.structured_outputs is not None:
        asked += _of_structured_outputs(request.structured_outputs)
    if not asked:
        return None
    if len(asked) > 1:
        raise bad_request(f"{asked[0][0]} and {asked[1][0]} both say a form.", asked[1][0])
    ((param, kind, value),) = asked
    if request.ignore_eos:
        raise bad_request("ignore_eos and a form exclude each other: it says the end.", param)
    try:
        return _form(param, kind, value)
    except ConfigError as error:
        raise bad_request(str(error), param) from None


def require_guides(deployment: Deployment, param: str) -> None:
    """Raise ApiError where the engine holds no output to a grammar; `param` asks for one."""
    if not deployment.generator.guided_decoding:
        raise bad_request(
            f"{param} is not supported here: the generator of {deployment.name} is served without "
            "guided decoding (generator.guided_decoding in the deployment).",
            param,
            "unsupported_parameter",
        )


def _of_response_format(asked: ResponseFormat) -> list[tuple[str, str, Any]]:
    if asked.type == "text":
        return []
    if asked.type == "json_object":
        return [("response_format", "object", None)]
    given = asked.json_schema
    if given is None or given.schema is None:
        raise bad_request(
            "response_format of the type json_schema needs json_schema.schema.",
            "response_format.json_schema",
        )
    kind = "json" if given.strict else "loose json"
    return [("response_format.json_schema.schema", kind, given.schema)]


def _of_structured_outputs(asked: StructuredOutputs) -> list[tuple[str, str, Any]]:
    said = msgspec.structs.asdict(asked).items()
    found = [(f"structured_outputs.{name}", name, value) for name, value in said]
    found = [each for each in found if each[2] is not None]
    if not found:
        raise bad_request("structured_outputs needs json, regex or choice.", "structured_outputs")
    return found


def _form(param: str, kind: str, value: Any) -> OutputForm:
    if kind == "object":
        return OutputForm(param, *_any_object())
    if kind == "regex":
        rules: Rules = {ROOT: parse_regex(value)}
        return OutputForm(param, rules, guide_text(rules), regex=value)
    if kind == "choice":
        if sum(map(len, value)) > MAX_GUIDE_BYTES:
            raise ConfigError(f"The choices have more than {MAX_GUIDE_BYTES:,} characters.")
        rules = {ROOT: Choice(tuple(map(literal, value)))}
        return OutputForm(param, rules, guide_text(rules))
    text = value if isinstance(value, str) else json.dumps(value)
    return OutputForm(param, *_json_form(text, kind == "json"), schema=text)


@lru_cache(maxsize=1)
def _any_object() -> tuple[Rules, str]:
    rules = json_object_rules()
    return rules, guide_text(rules)


@lru_cache(maxsize=64)  # programs ask for the same few again and again
def _json_form(text: str, strict: bool) -> tuple[Rules, str]:
    """The grammar of a schema's texts."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The schema is not JSON: {error}.") from None
    rules = json_rules(schema, strict=strict)
    return rules, guide_text(rules)


@lru_cache(maxsize=64)
def _boxed(text: str) -> str | None:
    """A schema as a search takes it; None for one whose texts not every box can hold."""
    try:
        boxed = json.dumps(inlined(json.loads(text)))
    except ConfigError:
        return None
    return boxed if _fits_box(None, boxed) else None


def _fits_box(regex: str | None, schema: str | None) -> bool:
    try:
        return answer_constraint(regex, schema, "\n\n") is not None
    except ConfigError:
        return False
