"""JSON schemas without recursion, read into trees. Pure.

These keywords of JSON Schema are read: type, enum, const, anyOf, properties, required,
additionalProperties (false alone), items, minItems, maxItems, minLength, maxLength and pattern.
Properties come in the order in which the schema names them, and no others: programs read the
answers, so nothing is gained by leaving the order open. Texts hold neither quotes, backslashes nor
braces, which a box could not hold either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tts.build.errors import ConfigError
from tts.build.input_files import Unreadable, parse_json

from .regex import parse_regex
from .regular import (
    EMPTY,
    TEXT,
    Chars,
    Choice,
    Node,
    Repeat,
    Seq,
    chars,
    chars_of,
    literal,
    optional,
    without,
)

MAX_ITEMS = 1000
"""Most items of an array, or characters of a text, that a schema may ask for."""
DIGITS = 15
"""Most digits of a number before the point, and after it: what a double holds exactly. Without a
bound a model may write digits until its request ends."""
_IGNORED = {"$schema", "$id", "$comment", "title", "description", "default", "examples"}
_DIGIT = chars((ord("0"), ord("9")))
_FIRST_DIGIT = chars((ord("1"), ord("9")))
INTEGER = Seq(
    (
        optional(literal("-")),
        Choice((literal("0"), Seq((_FIRST_DIGIT, Repeat(_DIGIT, 0, DIGITS - 1))))),
    )
)
NUMBER = Seq(
    (
        INTEGER,
        optional(Seq((literal("."), Repeat(_DIGIT, 1, DIGITS)))),
        optional(Seq((chars_of("eE"), optional(chars_of("+-")), Repeat(_DIGIT, 1, 3)))),
    )
)
_CHAR = without(TEXT, chars_of('"\\{}'))
_COMMA = Seq((literal(","), optional(literal(" "))))
_COLON = Seq((literal(":"), optional(literal(" "))))
_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern"},
    "integer": set[str](),
    "number": set[str](),
    "boolean": set[str](),
    "null": set[str](),
}


def parse_schema(text: str) -> Node:
    """The JSON texts, one line each, of the values that a schema allows.

    Raises ConfigError naming the place in the schema and what is wrong there.
    """
    try:
        schema = parse_json(text, strict=True)
    except Unreadable as error:
        raise ConfigError(f"The schema of the answer cannot be read: {error}.") from error
    return _value(schema, "$")


def _value(schema: Any, at: str) -> Node:
    if not isinstance(schema, dict):
        _refuse(at, f"it is {_shown(schema)}; it must be an object with a type")
    for keyword in ("const", "enum", "anyOf"):
        if keyword in schema:
            _allow_only(schema, at, {keyword, "type"} if keyword != "anyOf" else {keyword})
            return _enumeration(schema, keyword, at)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        if not kinds:
            _refuse(f"{at}.type", "the list is empty")
        named = [_of_type(kind, schema, at) for kind in kinds]
        known = _KEYWORDS.keys() & {kind for kind in kinds if isinstance(kind, str)}
        _allow_only(schema, at, {"type"}.union(*(_KEYWORDS[kind] for kind in known)))
        return Choice(tuple(named))
    node = _of_type(kinds, schema, at)
    _allow_only(schema, at, {"type"} | _KEYWORDS[str(kinds)])
    return node


def _enumeration(schema: Mapping[str, Any], keyword: str, at: str) -> Node:
    if keyword == "const":
        return literal(_text(schema["const"]))
    options = schema[keyword]
    if not isinstance(options, list) or not options:
        _refuse(f"{at}.{keyword}", "it must be a list with at least one entry")
    if keyword == "enum":
        return Choice(tuple(literal(_text(option)) for option in options))
    return Choice(
        tuple(_value(option, f"{at}.anyOf[{place}]") for place, option in enumerate(options))
    )


def _of_type(kind: Any, schema: Mapping[str, Any], at: str) -> Node:
    make = _MAKERS.get(kind) if isinstance(kind, str) else None
    if make is None:
        what = "there is none" if kind is None else f"it is {_shown(kind)}"
        _refuse(f"{at}.type", f"{what}; allowed: {', '.join(_MAKERS)}")
    return make(schema, at)


def _object(schema: Mapping[str, Any], at: str) -> Node:
    if schema.get("additionalProperties", False) is not False:
        _refuse(f"{at}.additionalProperties", "only false is supported")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        _refuse(f"{at}.properties", "it must be an object of schemas")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        _refuse(f"{at}.required", "it must be a list of names")
    if unknown := [name for name in required if name not in properties]:
        _refuse(f"{at}.required", f"{unknown[0]!r:.100} is none of the properties")
    members = [
        (
            Seq((literal(_text(name)), _COLON, _value(value, f"{at}.properties.{name}"))),
            name in required,
        )
        for name, value in properties.items()
    ]
    return Seq((literal("{"), _members(members), literal("}")))


def _members(members: list[tuple[Seq, bool]]) -> Node:
    """The members in order, with commas between those that are there."""
    options: list[Node] = []
    for place, (first, is_required) in enumerate(members):
        after = [
            Seq((_COMMA, member)) if needed else optional(Seq((_COMMA, member)))
            for member, needed in members[place + 1 :]
        ]
        options.append(Seq((first, *after)))
        if is_required:
            return Choice(tuple(options))
    return Choice((*options, EMPTY))


def _array(schema: Mapping[str, Any], at: str) -> Node:
    if "items" not in schema:
        _refuse(at, "an array needs items, the schema of its entries")
    item = _value(schema["items"], f"{at}.items")
    least, most = _bounds(schema, "minItems", "maxItems", at)
    if most == 0:
        return literal("[]")
    more = Repeat(Seq((_COMMA, item)), max(least - 1, 0), None if most is None else most - 1)
    entries: Node = Seq((item, more))
    return Seq((literal("["), optional(entries) if least == 0 else entries, literal("]")))


def _string(schema: Mapping[str, Any], at: str) -> Node:
    if "pattern" not in schema:
        least, most = _bounds(schema, "minLength", "maxLength", at)
        return Seq((literal('"'), Repeat(_CHAR, least, most), literal('"')))
    if schema.keys() & {"minLength", "maxLength"}:
        _refuse(at, "a pattern cannot be combined with minLength and maxLength")
    pattern = schema["pattern"]
    if not isinstance(pattern, str):
        _refuse(f"{at}.pattern", f"it is {_shown(pattern)}; it must be a text")
    if not (pattern.startswith("^") and pattern.endswith("$")):
        # JSON Schema searches; only what is anchored at both ends says what the whole text is
        _refuse(f"{at}.pattern", "it must begin with ^ and end with $: it describes the whole text")
    try:
        node = parse_regex(pattern)
    except ConfigError as error:
        raise ConfigError(f"{_where(f'{at}.pattern')} {error.message}") from error
    return Seq((literal('"'), _within_text(node, at), literal('"')))


def _within_text(node: Node, at: str) -> Node:
    """A pattern's language without the characters that a text in a box cannot hold."""
    if isinstance(node, Seq):
        return Seq(tuple(_within_text(part, at) for part in node.parts))
    if isinstance(node, Choice):
        return Choice(tuple(_within_text(option, at) for option in node.options))
    if isinstance(node, Repeat):
        return Repeat(_within_text(node.node, at), node.least, node.most)
    if not isinstance(node, Chars):
        raise TypeError("a pattern is regular")
    left = without(node, chars_of('"\\{}'))
    if not left.ranges:
        _refuse(f"{at}.pattern", 'a text in an answer holds none of the characters " \\ { }')
    return left


def _bounds(schema: Mapping[str, Any], low: str, high: str, at: str) -> tuple[int, int | None]:
    for name in (low, high):
        value = schema.get(name, 0)
        if type(value) is not int or not 0 <= value <= MAX_ITEMS:
            _refuse(f"{at}.{name}", f"it is {_shown(value)}; it must be from 0 to {MAX_ITEMS}")
    least, most = schema.get(low, 0), schema.get(high)
    if most is not None and most < least:
        _refuse(f"{at}.{high}", f"it is {most}, less than {low}")
    return least, most


def _allow_only(schema: Mapping[str, Any], at: str, keywords: set[str]) -> None:
    for keyword in schema:
        if keyword not in keywords | _IGNORED:
            _refuse(
                f"{at}.{keyword}",
                f"it is not supported here; supported: {', '.join(sorted(keywords))}",
            )


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    return f"{_text(value):.100}"


def _where(at: str) -> str:
    return f"The schema of the answer is wrong at {at}:"


def _refuse(at: str, why: str) -> NoReturn:
    raise ConfigError(f"{_where(at)} {why}.")


_MAKERS: dict[str, Callable[[Mapping[str, Any], str], Node]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": lambda schema, at: INTEGER,
    "number": lambda schema, at: NUMBER,
    "boolean": lambda schema, at: Choice((literal("true"), literal("false"))),
    "null": lambda schema, at: literal("null"),
}
