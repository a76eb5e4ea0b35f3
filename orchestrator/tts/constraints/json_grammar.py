"""JSON schemas read into grammars of JSON texts, recursion included. Pure.

`schema` reads what can stand in a box; here the whole output is the JSON text, so its texts hold
any character, and schemas may refer to themselves. Properties come in the order in which the schema
names them, and none beside them: each text obeys the schema, but not every text that obeys it can
be written.

Read are type, enum, const, anyOf, oneOf (as anyOf), allOf of one schema, $ref within the schema,
properties, required, additionalProperties, items, prefixItems, minItems, maxItems, minLength,
maxLength, pattern, some values of format, minimum and maximum, open or not. A strict reader refuses
any other keyword; one that is not leaves out what it cannot hold an output to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from tts.build.errors import ConfigError

from .grammar import MAX_GUIDE_BYTES, ROOT, Rules, require_end
from .number_ranges import MOST_DIGITS, Bound, integers, numbers
from .regex import parse_regex
from .regular import (
    EMPTY,
    Chars,
    Choice,
    Node,
    Ref,
    Repeat,
    Seq,
    chars,
    chars_of,
    literal,
    optional,
    without,
)
from .schema import INTEGER, MAX_ITEMS, NUMBER

MAX_DEPTH = 64
"""Schemas inside each other."""
MAX_SCHEMAS = 1000
"""Schemas inside of one, those that it refers to counted once. An engine compiles so many within
seconds, in which it does nothing else."""
MOST_SPACES = 1
JSON_LEVELS = 8
"""Objects and arrays inside each other, of a value that a schema leaves open."""

_IGNORED = frozenset(
    {"$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "title", "description"}
    | {"default", "examples", "example", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"nullable", "contentMediaType", "contentEncoding", "strict", "format"}
)
_KEYWORDS: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
_BEYOND = 10**MOST_DIGITS
_HEX = chars((48, 57), (65, 70), (97, 102))
_ESCAPE = Seq(
    (
        literal("\\"),
        Choice(
            (
                chars_of('"\\/bfnrt'),
                Seq((literal("u"), without(_HEX, chars_of("dD")), Repeat(_HEX, 3, 3))),
                Seq((literal("u"), chars_of("dD"), chars((48, 55)), Repeat(_HEX, 2, 2))),
            )
        ),
    )
)
_PLAIN = without(chars((0x20, 0xD7FF), (0xE000, 0x10FFFF)), chars_of('"\\'))
_COMMA = Seq((literal(","), Repeat(literal(" "), 0, MOST_SPACES)))
_COLON = Seq((literal(":"), Repeat(literal(" "), 0, MOST_SPACES)))
_DAYS = (
    "(0[1-9]|1[0-2])-(0[1-9]|1\\d|2[0-8])",
    "(0[13-9]|1[0-2])-(29|30)",
    "(0[13578]|1[02])-31",
)
_LEAP = r"[1-9]\d(0[48]|[2468][048]|[13579][26])-02-29"  # those of 2000 and 2400 left out
_DATE = rf"([1-9]\d{{3}}-({'|'.join(_DAYS)})|{_LEAP})"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "email": r"[A-Za-z0-9_%+\-]+(\.[A-Za-z0-9_%+\-]+)*@([A-Za-z0-9\-]+\.)+[A-Za-z]{2,}",
    "ipv4": rf"{_BYTE}(\.{_BYTE}){{3}}",
}
_BASE: Rules = {
    "char": Choice((_PLAIN, _ESCAPE)),
    "string": Seq((literal('"'), Repeat(Ref("char"), 0, None), literal('"'))),
    "integer": INTEGER,
    "number": NUMBER,
}


def json_rules(schema: Any, *, strict: bool = True) -> Rules:
    """The grammar of the JSON texts that a schema allows.

    Raises ConfigError naming the place of a mistake or, if `strict`, of anything not supported.
    """
    reader = _Reader(schema, strict=strict)
    rules = {ROOT: reader.value(schema, "$", 0), **reader.rules}
    require_end(rules)
    return rules


def json_object_rules() -> Rules:
    """The grammar of any JSON object."""
    reader = _Reader({}, strict=True)
    return {ROOT: reader.open_object(), **reader.rules}


class _Reader:
    """Reads the schemas inside of one; those that several places use become rules."""

    def __init__(self, root: Any, *, strict: bool) -> None:
        self._root = root
        self._strict = strict
        self._schemas = 0
        self._characters = 0
        self._by_ref: dict[str, str] = {}
        self.rules: Rules = {}

    def value(self, schema: Any, at: str, depth: int) -> Node:
        """The texts of a schema's values."""
        self._schemas += 1
        if self._schemas > MAX_SCHEMAS:
            _refuse(at, f"there are more than {MAX_SCHEMAS:,} schemas up to here")
        if depth > MAX_DEPTH:
            _refuse(at, f"schemas are nested more than {MAX_DEPTH} levels deep")
        if schema is True:
            return self._any()
        if not isinstance(schema, dict):
            _refuse(at, f"it is {_shown(schema)}; it must be an object")
        for keyword in ("$ref", "const", "enum", "anyOf", "oneOf", "allOf"):
            if keyword in schema:
                return self._composed(schema, keyword, at, depth)
        kinds = schema.get("type", _implied(schema))
        if kinds is None:
            self._allow_only(schema, at, set())
            return self._any()
        named = kinds if isinstance(kinds, list) else [kinds]
        if not named:
            _refuse(f"{at}.type", "the list is empty")
        for kind in named:
            if not isinstance(kind, str) or kind not in _KEYWORDS:
                _refuse(f"{at}.type", f"it is {_shown(kind)}; allowed: {', '.join(_KEYWORDS)}")
        self._allow_only(schema, at, {"type"}.union(*(_KEYWORDS[kind] for kind in named)))
        options = tuple(self._of_type(kind, schema, at, depth) for kind in named)
        return options[0] if len(options) == 1 else Choice(options)

    def open_object(self) -> Node:
        """Any object."""
        self._any()
        return Ref("object1")

    def _any(self) -> Node:
        """Any value, with so many levels: a model that opens bracket after bracket never ends."""
        if "value1" not in self.rules:
            for level in range(1, JSON_LEVELS + 1):
                self._add_level(level)
        return Ref("value1")

    def _add_level(self, level: int) -> None:
        leaves: list[Node] = [self._base("string"), self._base("number")]
        leaves += map(literal, ("true", "false", "null"))
        if level < JSON_LEVELS:
            leaves += [Ref(f"object{level}"), Ref(f"array{level}")]
            inner = Ref(f"value{level + 1}")
            member = Seq((self._base("string"), _COLON, inner))
            self.rules[f"object{level}"] = _listed("{", member, "}")
            self.rules[f"array{level}"] = _listed("[", inner, "]")
        self.rules[f"value{level}"] = Choice(tuple(leaves))

    def _base(self, name: str) -> Node:
        if name not in self.rules:
            self.rules[name] = _BASE[name]
            if name == "string":
                self._base("char")
        return Ref(name)

    def _composed(self, schema: Mapping[str, Any], keyword: str, at: str, depth: int) -> Node:
        said = schema[keyword]
        self._allow_only(schema, at, {keyword, "type"})
        if keyword == "$ref":
            return self._referred(said, at, depth)
        if keyword == "const":
            return self._literal(said, at)
        if not isinstance(said, list) or not said:
            _refuse(f"{at}.{keyword}", "it must be a list with at least one entry")
        if keyword == "enum":
            self._schemas += len(said)
            return Choice(tuple(self._literal(option, at) for option in said))
        if keyword == "allOf" and len(said) > 1:
            if self._strict:
                _refuse(f"{at}.allOf", "only one schema is supported in it")
            return self._any()
        return Choice(
            tuple(
                self.value(option, f"{at}.{keyword}[{place}]", depth + 1)
                for place, option in enumerate(said)
            )
        )

    def _referred(self, ref: Any, at: str, depth: int) -> Node:
        """A rule of its own for each schema that is referred to: it may refer to itself."""
        if not isinstance(ref, str) or not ref.startswith("#"):
            _refuse(f"{at}.$ref", f"it is {_shown(ref)}; only places in the same schema (#/...)")
        if ref not in self._by_ref:
            name = self._by_ref[ref] = f"ref{len(self._by_ref) + 1}"
            self.rules[name] = self.value(resolved(self._root, ref, at), ref[:200], depth + 1)
        return Ref(self._by_ref[ref])

    def _literal(self, value: Any, at: str) -> Node:
        """Exactly this value."""
        text = _text(value)
        self._characters += len(text)
        if self._characters > MAX_GUIDE_BYTES:
            _refuse(
                at, f"names and values have more than {MAX_GUIDE_BYTES:,} characters up to here"
            )
        return literal(text)

    def _of_type(self, kind: str, schema: Mapping[str, Any], at: str, depth: int) -> Node:
        match kind:
            case "object":
                return self._object(schema, at, depth)
            case "array":
                return self._array(schema, at, depth)
            case "string":
                return self._string(schema, at)
            case "integer" | "number":
                return self._number(kind, schema, at)
            case "boolean":
                return Choice((literal("true"), literal("false")))
            case _:
                return literal("null")

    def _object(self, schema: Mapping[str, Any], at: str, depth: int) -> Node:
        properties = schema.get("properties", {})
        if not isinstance(properties, dict):
            _refuse(f"{at}.properties", "it must be an object of schemas")
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            _refuse(f"{at}.required", "it must be a list of names")
        others = schema.get("additionalProperties", True)
        if unknown := [name for name in required if name not in properties]:
            if others is False:
                _refuse(f"{at}.required", f"{unknown[0]!r:.100} is none of the properties")
            properties = {**properties, **dict.fromkeys(unknown, others)}
        if not properties:
            if not schema.get("additionalProperties", "properties" not in schema):
                return literal("{}")
            inner = self.value(others, f"{at}.additionalProperties", depth + 1)
            return _listed("{", Seq((self._base("string"), _COLON, inner)), "}")
        needed = set(required)
        members = [
            (
                Seq(
                    (
                        self._literal(name, at),
                        _COLON,
                        self.value(value, f"{at}.properties.{name:.100}", depth + 1),
                    )
                ),
                name in needed,
            )
            for name, value in properties.items()
        ]
        return Seq((literal("{"), self._members(members), literal("}")))

    def _members(self, members: Sequence[tuple[Node, bool]]) -> Node:
        """The members in order, with commas between those that are there.

        From the first one on, the rest of the members is a rule: where several may be the first,
        each refers to the rest after it.
        """
        first_required = next(
            (place for place, (_, needed) in enumerate(members) if needed), len(members)
        )
        firsts = [self._as_rule(member) for member, _ in members[: first_required + 1]]
        later = [self._as_rule(member) for member, _ in members[first_required + 1 :]]
        rest: Node = Seq(
            tuple(
                part if needed else optional(part)
                for (_, needed), member in zip(members[first_required + 1 :], later, strict=True)
                for part in (Seq((_COMMA, member)),)
            )
        )
        options: list[Node] = [] if first_required < len(members) else [EMPTY]
        for place in reversed(range(len(firsts))):
            options.append(Seq((firsts[place], rest)))
            following = Seq((_COMMA, firsts[place]))
            before = following if place == first_required else optional(following)
            rest = self._as_rule(Seq((before, rest))) if place else rest
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _as_rule(self, node: Node) -> Node:
        name = f"part{len(self.rules) + 1}"
        self.rules[name] = node
        return Ref(name)

    def _array(self, schema: Mapping[str, Any], at: str, depth: int) -> Node:
        least, most = self._bounds(schema, "minItems", "maxItems", at)
        if "prefixItems" in schema:
            return self._tuple(schema, at, depth, least, most)
        item = self._as_rule(self.value(schema.get("items", True), f"{at}.items", depth + 1))
        if most == 0:
            return literal("[]")
        return _listed("[", item, "]", least, most)

    def _tuple(
        self, schema: Mapping[str, Any], at: str, depth: int, least: int, most: int | None
    ) -> Node:
        items = schema["prefixItems"]
        if not isinstance(items, list) or not items:
            _refuse(f"{at}.prefixItems", "it must be a list with at least one schema")
        if not least <= len(items) <= (len(items) if most is None else most):
            _refuse(f"{at}.prefixItems", "minItems and maxItems must allow as many items as it has")
        parts: list[Node] = []
        for place, item in enumerate(items):
            parts += [_COMMA] if place else []
            parts.append(self.value(item, f"{at}.prefixItems[{place}]", depth + 1))
        return Seq((literal("["), *parts, literal("]")))

    def _string(self, schema: Mapping[str, Any], at: str) -> Node:
        form = schema.get("format")
        if "pattern" in schema:
            if self._strict and schema.keys() & {"minLength", "maxLength"}:
                _refuse(at, "a pattern cannot be combined with minLength and maxLength")
            return Seq((literal('"'), self._pattern(schema["pattern"], at), literal('"')))
        least, most = self._bounds(schema, "minLength", "maxLength", at)
        if isinstance(form, str) and form in _FORMATS and not least and most is None:
            return Seq((literal('"'), parse_regex(_FORMATS[form]), literal('"')))
        if not least and most is None:
            return self._base("string")
        self._base("string")
        return Seq((literal('"'), Repeat(Ref("char"), least, most), literal('"')))

    def _pattern(self, pattern: Any, at: str) -> Node:
        if not isinstance(pattern, str):
            _refuse(f"{at}.pattern", f"it is {_shown(pattern)}; it must be a text")
        try:
            node = _escaped(parse_regex(pattern))
        except ConfigError as error:
            if self._strict:
                raise ConfigError(f"{_where(f'{at}.pattern')} {error.message}") from error
            return Repeat(self._base_char(), 0, None)
        free = Repeat(self._base_char(), 0, None)  # JSON Schema searches
        before = EMPTY if pattern.startswith("^") else free
        after = EMPTY if pattern.endswith("$") and not pattern.endswith("\\$") else free
        return Seq((before, node, after))

    def _base_char(self) -> Node:
        self._base("string")
        return Ref("char")

    def _number(self, kind: str, schema: Mapping[str, Any], at: str) -> Node:
        low = self._limit(schema, "minimum", "exclusiveMinimum", at, max)
        high = self._limit(schema, "maximum", "exclusiveMaximum", at, min)
        free = kind == "integer" or not schema.keys() & _KEYWORDS[kind]  # with an exponent
        if low is None and high is None and free:
            return self._base(kind)
        if kind == "number":
            found = numbers(low, high)
        else:
            found = integers(
                None if low is None else _next_integer(low),
                None if high is None else -_next_integer(Bound(-high.value, high.open)),
            )
        if found is None:
            _refuse(at, "no number is within its bounds")
        return found

    def _limit(
        self, schema: Mapping[str, Any], closed: str, opened: str, at: str, tighter: Any
    ) -> Bound | None:
        bounds = []
        for name, is_open in ((closed, False), (opened, True)):
            value = schema.get(name)
            if value is None:
                continue
            if isinstance(value, bool):  # as drafts before the sixth have it
                if self._strict:
                    _refuse(f"{at}.{name}", f"it is {_shown(value)}; it must be a number")
                continue
            try:
                number = Decimal(repr(value))
                beyond = number <= -_BEYOND if closed == "minimum" else number >= _BEYOND
            except (InvalidOperation, ValueError):
                _refuse(f"{at}.{name}", f"it is {_shown(value)}; it must be a number")
            if beyond:  # all that is written, as the limits of a language's own integers are
                continue
            if abs(number) >= _BEYOND or int(number.as_tuple().exponent) < -MOST_DIGITS:
                if self._strict:
                    _refuse(f"{at}.{name}", f"it has more than {MOST_DIGITS} digits")
                continue
            bounds.append(Bound(number, is_open))
        if len(bounds) < 2:
            return bounds[0] if bounds else None
        return tighter(reversed(bounds), key=lambda bound: bound.value)  # type: ignore[no-any-return]

    def _bounds(
        self, schema: Mapping[str, Any], low: str, high: str, at: str
    ) -> tuple[int, int | None]:
        for name in (low, high):
            value = schema.get(name, 0)
            if type(value) is float and value.is_integer():  # a whole number to JSON Schema
                value = int(value)
            if type(value) is not int or not 0 <= value <= MAX_ITEMS:
                _refuse(f"{at}.{name}", f"it is {_shown(value)}; it must be from 0 to {MAX_ITEMS}")
        least, most = schema.get(low, 0), schema.get(high)
        least, most = int(least), None if most is None else int(most)
        if most is not None and most < least:
            _refuse(f"{at}.{high}", f"it is {most}, less than {low}")
        return least, most

    def _allow_only(self, schema: Mapping[str, Any], at: str, keywords: set[str]) -> None:
        if not self._strict:
            return
        for keyword in schema:
            if keyword not in keywords | _IGNORED:
                _refuse(
                    f"{at}.{keyword:.100}",
                    f"it is not supported here; supported: {', '.join(sorted(keywords)) or 'type'}",
                )


def resolved(root: Any, ref: str, at: str) -> Any:
    """The schema at a place such as #/$defs/Step; raises ConfigError."""
    found = root
    for part in ref[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name[:6]) < len(found):
            found = found[int(name[:6])]
        else:
            _refuse(f"{at}.$ref", f"it is {_shown(ref)}, and there is nothing at that place")
    return found


def inlined(schema: Any) -> Any:
    """A schema with each $ref replaced by its definition, and without $defs.

    Raises ConfigError for one that refers to itself, or that becomes too large.
    """
    left = [MAX_SCHEMAS]

    def of(node: Any, at: str, path: tuple[str, ...]) -> Any:
        left[0] -= 1
        if left[0] < 0:
            _refuse(at, f"with what it refers to it has more than {MAX_SCHEMAS:,} parts")
        if len(path) > MAX_DEPTH or at.count(".") > 4 * MAX_DEPTH:
            _refuse(at, f"schemas are nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, list):
            return [of(part, f"{at}.{place}", path) for place, part in enumerate(node)]
        if not isinstance(node, dict):
            return node
        ref = node.get("$ref")
        if isinstance(ref, str) and ref.startswith("#"):
            if ref in path:
                _refuse(f"{at}.$ref", "the schema refers to itself")
            return of(resolved(schema, ref, at), at, (*path, ref))
        return {
            name: value if name in ("const", "enum", "default") else of(value, f"{at}.{name}", path)
            for name, value in node.items()
            if name not in ("$defs", "definitions")
        }

    return of(schema, "$", ())


def _implied(schema: Mapping[str, Any]) -> str | None:
    """The type of a schema that names none, by its keywords."""
    for kind in ("object", "array", "string"):
        if schema.keys() & _KEYWORDS[kind]:
            return kind
    return "number" if schema.keys() & _KEYWORDS["number"] else None


def _listed(begin: str, item: Node, end: str, least: int = 0, most: int | None = None) -> Node:
    more = Repeat(Seq((_COMMA, item)), max(least - 1, 0), None if most is None else most - 1)
    entries = Seq((item, more))
    return Seq((literal(begin), optional(entries) if least == 0 else entries, literal(end)))


def _escaped(node: Node) -> Node:
    """A pattern's language as JSON spells it between quotes."""
    if isinstance(node, Seq):
        return Seq(tuple(map(_escaped, node.parts)))
    if isinstance(node, Choice):
        return Choice(tuple(map(_escaped, node.options)))
    if isinstance(node, Repeat):
        return Repeat(_escaped(node.node), node.least, node.most)
    if not isinstance(node, Chars):
        return node
    options: list[Node] = [literal(f"\\{char}") for char in '"\\' if char in node]
    if not options:
        return node
    rest = without(node, chars_of('"\\'))
    return Choice((rest, *options) if rest.ranges else tuple(options))


def _next_integer(low: Bound) -> int:
    """The least integer that is not below a bound."""
    whole = int(low.value)
    whole += whole < low.value
    return whole + (low.open and whole == low.value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    return f"{_text(value):.100}"


def _where(at: str) -> str:
    return f"The schema is wrong at {at:.300}:"


def _refuse(at: str, why: str) -> NoReturn:
    raise ConfigError(f"{_where(at)} {why}.")
