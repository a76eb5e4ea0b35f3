"""Checking a JSON schema before an engine compiles it. Pure.

Engines hold a whole output to a schema themselves, and ignore keywords that they do not know. But
one that does not compile fails in the midst of their work, and some compile for minutes. So what
xgrammar fails at, or takes too long for, is refused here by its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from tts.base.errors import ConfigError
from tts.base.input_files import Unreadable, parse_json
from tts.engines.generate_request import MAX_GUIDE_BYTES

from .regex import parse_regex
from .regular import is_plain, rules_of
from .schema import refuse
from .step_grammar import whole_grammar

MAX_DEPTH = 64
"""Schemas inside each other; 300 take an engine seven seconds."""
MAX_SCHEMAS = 1000
MAX_COUNT = 100_000
"""Most characters, items or properties that a schema may ask for."""
BOUNDED = 16
"""Weight of a text with a length or a pattern, beside one of any length."""
MAX_TEXTS, MAX_ENGINE_TEXTS = 32 * BOUNDED, BOUNDED
"""Most texts that may begin at one place, such as in `anyOf`: an engine reads all of them at once.
With 100 of 1,000 characters a token takes 70 ms; in the grammar that an engine makes of a schema
itself, 50 ms for one beside another text, and 0.7 s for 20."""
_COUNTS = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))
_SCHEMAS = ("items", "additionalProperties", "unevaluatedProperties", "contains", "not")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_INT64 = 2**63


def checked_schema(text: str, *, strict: bool = True) -> dict[str, Any]:
    """A schema as an engine takes it.

    Left out are bounds beyond all integers of 64 bits, and without `strict` patterns that engines
    do not compile. Raises ConfigError naming the place of a mistake.
    """
    if len(text) > MAX_GUIDE_BYTES:
        raise ConfigError(f"The schema has {len(text):,} characters; at most {MAX_GUIDE_BYTES:,}.")
    try:
        schema = parse_json(text, strict=True)
    except Unreadable as error:
        raise ConfigError(f"The schema is not JSON: {error}.") from None
    schema = {} if schema is True else schema
    rows = _counted(schema)  # before anything that takes longer reads them
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        refuse(error.json_path, f"{error.message:.300}")
    except RecursionError:
        refuse("$", "schemas are nested too deep")
    if not isinstance(schema, dict):
        refuse("$", "it must be an object")
    for at, here in rows:
        if isinstance(here, dict):
            _check(schema, here, at, strict=strict)
    _require_few_texts(schema, MAX_TEXTS)
    return schema


def require_light(schema: Mapping[str, Any]) -> None:
    """Raise ConfigError for a checked schema that takes an engine's own grammar too long."""
    _require_few_texts(schema, MAX_ENGINE_TEXTS)
    for at, here in _counted(schema):
        if isinstance(here, dict) and not is_plain(parse_regex(here.get("pattern", ""))):
            refuse(f"{at}.pattern", "beside the other keywords of this schema it is too complex")


def _counted(schema: Any) -> list[tuple[str, Any]]:
    """All schemas inside of one, and itself, with their places; raises ConfigError for many."""
    rows = [("$", schema, 0)]
    for place, (at, here, depth) in enumerate(rows, start=1):
        if depth > MAX_DEPTH:
            refuse(at, f"schemas are nested more than {MAX_DEPTH} levels deep")
        if place > MAX_SCHEMAS:
            refuse(at, f"there are more than {MAX_SCHEMAS:,} schemas up to here")
        if isinstance(here, dict):
            rows += [(where, inner, depth + 1) for where, inner in _inside(here, at)]
    return [(at, here) for at, here, _ in rows]


def _require_few_texts(root: Mapping[str, Any], most: int) -> None:
    counts: dict[int, int] = {}

    def count(schema: Any) -> int:
        """The weight of the texts that may begin at one place of a schema."""
        schema = _resolved(root, schema)
        if not isinstance(schema, dict):
            return 0
        if id(schema) in counts:
            return counts[id(schema)]
        counts[id(schema)] = 0  # also where it refers to itself
        bounded = not schema.keys().isdisjoint(("maxLength", "minLength", "pattern"))
        weight = BOUNDED if bounded else int(schema.get("type") == "string")
        for name in ("anyOf", "oneOf", "allOf"):
            options = schema.get(name, ())
            weights = [count(option) for option in options]
            weight += max(weights) if _are_told_apart(root, options) else sum(weights)
        counts[id(schema)] = max([weight, *(count(each) for _, each in _inside(schema, ""))])
        if counts[id(schema)] > most:
            raise ConfigError(
                f"Too many texts of the schema may begin at one place, by anyOf, oneOf or allOf: "
                f"{counts[id(schema)] // BOUNDED} with maxLength, minLength or pattern.",
                hint="Leave those out where several texts may stand.",
            )
        return counts[id(schema)]

    count(root)


def _are_told_apart(root: Any, options: Sequence[Any]) -> bool:
    """Whether schemas are of objects whose first members differ, and tell which of them it is."""
    values: list[Any] = []
    for option in options:
        match _resolved(root, option):
            case {"properties": {**members}} if members:
                first = _resolved(root, next(iter(members.values())))
            case _:
                return False
        if not isinstance(first, dict) or not first.keys() & {"const", "enum"}:
            return False
        values += [first["const"]] if "const" in first else first["enum"]
    return 0 < len(values) == len({repr(value) for value in values})


def _resolved(root: Any, schema: Any) -> Any:
    while isinstance(schema, dict) and "$ref" in schema:
        schema, path = root, schema["$ref"].split("/")[1:]
        for part in path:
            schema = schema[part]
    return schema


def _inside(schema: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    for name in _SCHEMAS:
        if name in schema:
            yield f"{at}.{name}", schema[name]
    for name in _LISTS:
        if isinstance(schemas := schema.get(name), list):
            yield from ((f"{at}.{name}[{place}]", inner) for place, inner in enumerate(schemas))
    for name in _MAPS:
        if isinstance(schemas := schema.get(name), dict):
            yield from ((f"{at}.{name}.{key:.100}", inner) for key, inner in schemas.items())


def _check(root: Any, schema: dict[str, Any], at: str, *, strict: bool) -> None:
    if "$ref" in schema:
        _check_ref(root, schema["$ref"], at)
    if schema.get("enum") == []:
        refuse(f"{at}.enum", "it must have at least one entry")
    for low, high in _COUNTS:
        for name in (low, high):
            if schema.get(name, 0) > MAX_COUNT:
                refuse(f"{at}.{name}", f"it is {schema[name]}; at most {MAX_COUNT:,}")
        if schema.get(low, 0) > schema.get(high, MAX_COUNT):
            refuse(f"{at}.{high}", f"it is {schema[high]}, less than {low}")
    _check_bounds(schema, at)
    if "pattern" in schema:
        try:
            whole_grammar(rules_of(parse_regex(schema["pattern"]), "root"))
        except ConfigError as error:
            if strict:
                refuse(f"{at}.pattern", str(error))
            del schema["pattern"]


def _check_bounds(schema: dict[str, Any], at: str) -> None:
    names = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    for name in names:
        if abs(schema.get(name, 0)) >= _INT64:
            del schema[name]
    lows = [(schema[name], name) for name in names[:2] if name in schema]
    highs = [(schema[name], name) for name in names[2:] if name in schema]
    for low, least in lows:
        for high, most in highs:
            is_open = least != "minimum" or most != "maximum"
            if low > high or (low == high and is_open):
                refuse(f"{at}.{most}", f"no number is from {least} {low} to {most} {high}")


def _check_ref(root: Any, ref: str, at: str) -> None:
    """Refuse what leads to nowhere, or only to itself: it would hold an output to nothing."""
    passed = set()
    while ref not in passed:
        passed.add(ref)
        if ref != "#" and not ref.startswith("#/"):
            refuse(f"{at}.$ref", f"it is {ref!r:.100}; only places in the same schema (#/...)")
        part_schema = root
        for part in ref.split("/")[1:]:
            # xgrammar knows no ~1 and ~0
            if not isinstance(part_schema, dict) or part not in part_schema:
                refuse(f"{at}.$ref", f"it is {ref!r:.100}, and there is nothing at that place")
            part_schema = part_schema[part]
        if not isinstance(part_schema, dict) or "$ref" not in part_schema:
            return
        ref = str(part_schema["$ref"])
    refuse(f"{at}.$ref", "it refers to itself")
