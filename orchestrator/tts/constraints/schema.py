"""JSON schemas read into trees: of what stands in a box, and of whole outputs. Pure.

These keywords of JSON Schema are read: type, enum, const, anyOf, oneOf (as anyOf), properties,
required, additionalProperties (false alone), items, minItems, maxItems, minLength, maxLength,
pattern, minimum and maximum of integers, open or not, and multipleOf where the last digits tell it,
or a thousand multiples at most are within the bounds. Properties come in the order in which the
schema names them, and no others: programs read the answers, so nothing is gained by leaving the
order open. JSON is on one line, with a space at most between its parts: a small model that may
write white space writes it until its tokens are used up.

A box cannot hold quotes, backslashes and braces in texts, so there texts have none. Whole outputs
have JSON's own texts, objects of any names, values of any kind, and $ref, also of a schema to
itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NoReturn

from tts.base.errors import ConfigError
from tts.base.input_files import Unreadable, parse_json

from .regex import parse_regex
from .regular import (
    EMPTY,
    TEXT,
    Chars,
    Choice,
    Node,
    Ref,
    Repeat,
    Seq,
    chars,
    chars_of,
    is_plain,
    literal,
    optional,
    rules_of,
    without,
)

MAX_ITEMS = 1000
"""Most items of an array, or characters of a text, that a schema may ask for."""
MAX_BOXED = 100
DIGITS = 15
"""Most digits of a number before the point, and after it: what a double holds exactly. Without a
bound a model may write digits until its request ends."""
ANY_LEVELS = 8
"""Objects and arrays inside each other, of a value that a schema leaves open: a model that opens
bracket after bracket never ends."""
_LARGEST = 10**DIGITS - 1
_IGNORED = {"$schema", "$id", "$comment", "$defs", "title", "description", "default", "examples"}
_IGNORED |= {"definitions", "deprecated", "discriminator"}
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
_BOX_CHAR = without(TEXT, chars_of('"\\{}'))
_HEX = chars((48, 57), (65, 70), (97, 102))
_ESCAPED = (
    chars_of('"\\/bfnrt'),
    Seq((literal("u"), without(_HEX, chars_of("dD")), Repeat(_HEX, 3, 3))),
    Seq((literal("ud"), chars((48, 55)), Repeat(_HEX, 2, 2))),  # the rest are halves of pairs
)
_JSON_CHAR = Choice(
    (
        without(chars((0x20, 0xD7FF), (0xE000, 0x10FFFF)), chars_of('"\\')),
        Seq((literal("\\"), Choice(_ESCAPED))),
    )
)
_COMMA = Seq((literal(","), optional(literal(" "))))
_COLON = Seq((literal(":"), optional(literal(" "))))
_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "number": {"multipleOf"},
    "boolean": set[str](),
    "null": set[str](),
}


def parse_schema(text: str) -> Node:
    """The JSON lines of the values that a schema allows in a box; or a telling ConfigError."""
    try:
        schema = parse_json(text, strict=True)
    except Unreadable as error:
        raise ConfigError(f"The schema of the answer cannot be read: {error}.") from error
    return _SchemaReader(schema, _BOX_CHAR).value(schema, "$")


def whole_rules(schema: Mapping[str, Any]) -> dict[str, Node]:
    """The rules of the outputs that a checked schema allows; ConfigError: it is not read here."""
    reader = _SchemaReader(schema, Ref("char"))
    return {"root": reader.value(schema, "$"), "char": _JSON_CHAR, **reader.rules}


class _SchemaReader:
    def __init__(self, root: Any, char: Chars | Ref) -> None:
        """`char` is a character of a text."""
        self._root = root
        self._char = char
        self._whole = isinstance(char, Ref)
        self._refs: dict[str, Ref] = {}
        self.rules: dict[str, Node] = {}

    def value(self, schema: Any, at: str) -> Node:
        """The texts of a schema's values."""
        if self._whole and schema is True:
            return self._any(ANY_LEVELS)
        if not isinstance(schema, dict):
            refuse(at, f"it is {_shown(schema)}; it must be an object with a type")
        schema = _inlined(schema)
        if self._whole and schema.keys() <= _IGNORED:
            return self._any(ANY_LEVELS)
        if self._whole and "$ref" in schema:
            _allow_only(schema, at, {"$ref"})
            return self._referred(schema["$ref"])
        for keyword in ("const", "enum", "anyOf", "oneOf"):
            if keyword in schema:
                _allow_only(schema, at, {keyword, "type"} if keyword[2:] != "Of" else {keyword})
                return self._enumeration(schema, keyword, at)
        kinds = schema.get("type")
        if isinstance(kinds, list):
            if not kinds:
                refuse(f"{at}.type", "the list is empty")
            alternatives = [self._of_type(kind, schema, at) for kind in kinds]
            names_of_kinds = _KEYWORDS.keys() & {kind for kind in kinds if isinstance(kind, str)}
            _allow_only(schema, at, {"type"}.union(*(_KEYWORDS[kind] for kind in names_of_kinds)))
            return Choice(tuple(alternatives))
        node = self._of_type(kinds, schema, at)
        _allow_only(schema, at, {"type"} | _KEYWORDS[str(kinds)])
        return node

    def _enumeration(self, schema: Mapping[str, Any], keyword: str, at: str) -> Node:
        if keyword == "const":
            return literal(_text(schema["const"]))
        options = schema[keyword]
        if not isinstance(options, list) or not options:
            refuse(f"{at}.{keyword}", "it must be a list with at least one entry")
        if keyword == "enum":
            return Choice(tuple(literal(_text(option)) for option in options))
        return Choice(
            tuple(
                self.value(option, f"{at}.{keyword}[{place}]")
                for place, option in enumerate(options)
            )
        )

    def _referred(self, ref: str) -> Node:
        """A rule of its own for each schema that is referred to: it may refer to itself."""
        if ref not in self._refs:
            self._refs[ref] = Ref(f"ref{len(self._refs)}")
            schema = self._root
            for part in ref.split("/")[1:]:
                schema = schema[part]
            self.rules[self._refs[ref].name] = self.value(schema, ref)
        return self._refs[ref]

    def _any(self, levels: int) -> Node:
        if f"value{levels}" not in self.rules:
            options = [self._string({}, "$"), NUMBER, *map(literal, ("true", "false", "null"))]
            if levels:
                options += [
                    self._map(self._any(levels - 1)),
                    _listed("[", self._any(levels - 1), "]"),
                ]
            self.rules[f"value{levels}"] = Choice(tuple(options))
        return Ref(f"value{levels}")

    def _map(self, value: Node) -> Node:
        return _listed("{", Seq((self._string({}, "$"), _COLON, value)), "}")

    def _of_type(self, kind: Any, schema: Mapping[str, Any], at: str) -> Node:
        readers = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": _integer,
            "number": _number,
            "boolean": lambda *_: Choice((literal("true"), literal("false"))),
            "null": lambda *_: literal("null"),
        }
        if isinstance(kind, str) and kind in readers:
            return readers[kind](schema, at)
        what = "there is none" if kind is None else f"it is {_shown(kind)}"
        refuse(f"{at}.type", f"{what}; allowed: {', '.join(_KEYWORDS)}")

    def _object(self, schema: Mapping[str, Any], at: str) -> Node:
        others = schema.get("additionalProperties", self._whole and "properties" not in schema)
        is_map = not (schema.get("properties") or schema.get("required"))
        if self._whole and others is not False and is_map:
            return self._map(self.value(others, f"{at}.additionalProperties"))
        if others is not False:
            refuse(f"{at}.additionalProperties", "only false is supported")
        properties = schema.get("properties", {})
        if not isinstance(properties, dict):
            refuse(f"{at}.properties", "it must be an object of schemas")
        if len(properties) > MAX_BOXED and not self._whole:
            refuse(f"{at}.properties", f"there are {len(properties):,}; at most {MAX_BOXED}")
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            refuse(f"{at}.required", "it must be a list of names")
        if unknown := [name for name in required if name not in properties]:
            refuse(f"{at}.required", f"{unknown[0]!r:.100} is none of the properties")
        members = [
            (
                self._part(
                    Seq(
                        (literal(_text(name)), _COLON, self.value(value, f"{at}.properties.{name}"))
                    )
                ),
                name in required,
            )
            for name, value in properties.items()
        ]
        return Seq((literal("{"), self._members(members), literal("}")))

    def _part(self, node: Node) -> Node:
        """A node that several places of a grammar may name."""
        if not self._whole:
            return node
        name = f"part{len(self.rules)}"
        self.rules[name] = node
        return Ref(name)

    def _members(self, members: list[tuple[Node, bool]]) -> Node:
        """The members in order, with commas between those that are there."""
        options: list[Node] = []
        after: Node = EMPTY
        for member, is_required in reversed(members):
            if is_required:
                options.clear()
            options.insert(0, Seq((member, after)))
            more = Seq((_COMMA, member))
            after = self._part(Seq((more if is_required else optional(more), after)))
        is_needed = any(is_required for _, is_required in members)
        return Choice(tuple(options) if is_needed else (*options, EMPTY))

    def _array(self, schema: Mapping[str, Any], at: str) -> Node:
        if "items" not in schema:
            refuse(at, "an array needs items, the schema of its entries")
        item = self._part(self.value(schema["items"], f"{at}.items"))
        least, most = _bounds(schema, "minItems", "maxItems", at)
        if most == 0:
            return literal("[]")
        return _listed("[", item, "]", least, most)

    def _string(self, schema: Mapping[str, Any], at: str) -> Node:
        if "pattern" not in schema:
            least, most = _bounds(schema, "minLength", "maxLength", at)
            return Seq((literal('"'), Repeat(self._char, least, most), literal('"')))
        if schema.keys() & {"minLength", "maxLength"}:
            refuse(at, "a pattern cannot be combined with minLength and maxLength")
        pattern = schema["pattern"]
        if not isinstance(pattern, str):
            refuse(f"{at}.pattern", f"it is {_shown(pattern)}; it must be a text")
        if not (pattern.startswith("^") and pattern.endswith("$")):
            # JSON Schema searches; only what is anchored at both ends says what the whole text is
            refuse(
                f"{at}.pattern", "it must begin with ^ and end with $: it describes the whole text"
            )
        try:
            node = self._within_text(parse_regex(pattern), at)
            if self._whole and not is_plain(node):
                name = f"pattern{len(self.rules)}"
                self.rules |= rules_of(node, name)
                node = Ref(name)
        except ConfigError as error:
            refuse(f"{at}.pattern", error.message)
        return Seq((literal('"'), node, literal('"')))

    def _within_text(self, node: Node, at: str) -> Node:
        """A pattern's language as it is spelled between quotes, if need be without some of it."""
        if isinstance(node, Seq):
            return Seq(tuple(self._within_text(part, at) for part in node.parts))
        if isinstance(node, Choice):
            return Choice(tuple(self._within_text(option, at) for option in node.options))
        if isinstance(node, Repeat):
            return Repeat(self._within_text(node.node, at), node.least, node.most)
        if not isinstance(node, Chars):
            raise TypeError("a pattern is regular")
        plain = without(node, chars_of('"\\' if self._whole else '"\\{}'))
        escaped = [literal(f"\\{char}") for char in '"\\' if self._whole and char in node]
        if not plain.ranges and not escaped:
            refuse(f"{at}.pattern", 'a text in an answer holds none of the characters " \\ { }')
        return Choice((*([plain] if plain.ranges else []), *escaped)) if escaped else plain


def _integer(schema: Mapping[str, Any], at: str) -> Node:
    """The integers within the bounds of a schema, of at most `DIGITS` digits."""
    for name in _KEYWORDS["integer"] & schema.keys():
        if type(schema[name]) is not int:
            refuse(f"{at}.{name}", f"it is {_shown(schema[name])}; it must be an integer")
    low = max(
        -_LARGEST,
        schema.get("minimum", -_LARGEST),
        schema.get("exclusiveMinimum", -_LARGEST - 1) + 1,
    )
    high = min(
        _LARGEST, schema.get("maximum", _LARGEST), schema.get("exclusiveMaximum", _LARGEST + 1) - 1
    )
    step = schema.get("multipleOf", 1)
    if step < 1:
        refuse(f"{at}.multipleOf", f"it is {step}; it must be at least 1")
    if (low, high, step) == (-_LARGEST, _LARGEST, 1):
        return INTEGER
    options: list[Node] = [
        *(Seq((literal("-"), each)) for each in _multiples(max(1, -high), -low, step, at)),
        *_multiples(max(0, low), high, step, at),
    ]
    if not options:
        refuse(at, "no integer is within its bounds")
    return Choice(tuple(options))


def _number(schema: Mapping[str, Any], at: str) -> Node:
    """Numbers; with multipleOf those with the decimals that tell a multiple, such as of 0.25."""
    if "multipleOf" not in schema:
        return NUMBER
    step = schema["multipleOf"]
    if type(step) not in (int, float) or step <= 0:
        refuse(f"{at}.multipleOf", f"it is {_shown(step)}; it must be a number above 0")
    exact = Decimal(str(step))
    if exact == exact.to_integral_value():
        return _integer({"multipleOf": int(exact)}, at)
    places = -int(exact.as_tuple().exponent)
    if (decimals := _last_digits(int(exact.scaleb(places)), places)) is None:
        refuse(f"{at}.multipleOf", _NO_MULTIPLES)
    return Seq((INTEGER, optional(Seq((literal("."), decimals)))))


_NO_MULTIPLES = (
    f"the last digits do not tell its multiples, and there are more than {MAX_ITEMS:,} of them"
)


def _multiples(low: int, high: int, step: int, at: str) -> list[Node]:
    """The multiples of `step` from `low` to `high`, none of them below 0."""
    if low > high:
        return []
    if step == 1:
        return [_naturals(low, high)]
    whole = range(-(-low // step) * step, high + 1, step)
    if len(whole) <= MAX_ITEMS:
        return [literal(str(value)) for value in whole]
    for places in range(1, DIGITS):
        if (ends := _last_digits(step, places)) is None:
            continue
        ten = 10**places
        first, last = max(1, -(-low // ten)), (high + 1) // ten - 1
        edges = (*range(whole[0], first * ten, step), *range((last + 1) * ten, high + 1, step))
        inner = [Seq((_naturals(first, last), ends))] if first <= last else []
        return [*inner, *(literal(str(value)) for value in edges)]
    refuse(f"{at}.multipleOf", _NO_MULTIPLES)


def _last_digits(step: int, places: int) -> Node | None:
    """The last digits, so many, that all multiples of `step` have and no others, if they tell."""
    if 10**places % step or 10**places // step > MAX_ITEMS:
        return None
    return Choice(tuple(literal(f"{n:0{places}}") for n in range(0, 10**places, step)))


def _naturals(low: int, high: int) -> Node:
    options = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        options.append(_digits(str(first), str(min(high, 10**length - 1))))
    return Choice(tuple(options))


def _digits(low: str, high: str) -> Node:
    rest = len(low) - 1
    if set(low) <= {"0"} and set(high) <= {"9"}:
        return Repeat(_DIGIT, len(low), len(low)) if low else EMPTY
    first, last = low[0], high[0]
    if first == last:
        return Seq((literal(first), _digits(low[1:], high[1:])))
    options: list[Node] = [
        Seq((literal(first), _digits(low[1:], "9" * rest))),
        Seq((literal(last), _digits("0" * rest, high[1:]))),
    ]
    if ord(last) - ord(first) > 1:
        between = chars((ord(first) + 1, ord(last) - 1))
        options.append(Seq((between, Repeat(_DIGIT, rest, rest))))
    return Choice(tuple(options))


def _listed(begin: str, item: Node, end: str, least: int = 0, most: int | None = None) -> Node:
    more = Repeat(Seq((_COMMA, item)), max(least - 1, 0), None if most is None else most - 1)
    entries = Seq((item, more))
    return Seq((literal(begin), optional(entries) if least == 0 else entries, literal(end)))


def _bounds(schema: Mapping[str, Any], low: str, high: str, at: str) -> tuple[int, int | None]:
    for name in (low, high):
        value = schema.get(name, 0)
        if type(value) is not int or not 0 <= value <= MAX_ITEMS:
            refuse(f"{at}.{name}", f"it is {_shown(value)}; it must be from 0 to {MAX_ITEMS}")
    least, most = schema.get(low, 0), schema.get(high)
    if most is not None and most < least:
        refuse(f"{at}.{high}", f"it is {most}, less than {low}")
    return least, most


def _inlined(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema without an `allOf` of one schema that says nothing that it says itself."""
    match schema.get("allOf"):
        case [dict() as only] if not only.keys() & schema.keys() - _IGNORED:
            return {**only, **{name: each for name, each in schema.items() if name != "allOf"}}
    return schema


def _allow_only(schema: Mapping[str, Any], at: str, keywords: set[str]) -> None:
    for keyword in schema:
        if keyword not in keywords | _IGNORED:
            refuse(
                f"{at}.{keyword}",
                f"it is not supported here; supported: {', '.join(sorted(keywords))}",
            )


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    return f"{_text(value):.100}"


def refuse(at: str, why: str) -> NoReturn:
    """Raise ConfigError for a schema that is wrong at this place."""
    raise ConfigError(f"The schema is wrong at {at:.300}: {why.removesuffix('.')}.")
