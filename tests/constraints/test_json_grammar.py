"""Schemas as grammars of whole texts: recursion, any characters, bounds of numbers."""

import json
import random
from decimal import Decimal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constraints.grammars import Grammar
from tests.constraints.languages import accepts
from tests.constraints.test_schema import SCHEMAS

from tts.build.errors import ConfigError
from tts.constraints.counts import BLOCK, in_blocks
from tts.constraints.grammar import ANY, EMPTY, Repeat, guide_text, text_before
from tts.constraints.json_grammar import (
    MAX_SCHEMAS,
    Seq,
    inlined,
    json_object_rules,
    json_rules,
    literal,
)
from tts.constraints.number_ranges import Bound, integers, numbers
from tts.constraints.regular import Automaton
from tts.constraints.schema import parse_schema

TREE = {
    "$defs": {
        "Node": {
            "type": "object",
            "title": "Node",
            "properties": {
                "name": {"type": "string", "description": "any text"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                "parent": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None},
            },
            "required": ["name", "children"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/Node",
}


@settings(max_examples=50)
@given(SCHEMAS, st.integers())
def test_every_text_of_a_schema_is_json_that_it_allows(schema, seed):
    rules = json_rules(schema)
    guide_text(rules)
    grammar, choice = Grammar(rules), random.Random(seed)
    for _ in range(3):
        text = grammar.drawn(choice)
        jsonschema.validate(json.loads(text), schema)
        assert grammar.accepts(text)


@pytest.mark.parametrize(
    "schema",
    [
        TREE,
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "required": ["a"]},
        {"type": "array"},
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "maxItems": 2},
        {"type": "string", "pattern": 'a"|\\\\'},
        {"type": "string", "pattern": "^[a-c]+$"},
        {"type": "string", "minLength": 2, "maxLength": 3},
        {"type": "string", "format": "date"},
        {"allOf": [{"type": "integer", "minimum": 3}]},
        {"oneOf": [{"type": "integer"}, {"const": 'a"\n{'}]},
        {"type": ["number", "null"], "exclusiveMinimum": -0.5, "maximum": 12.25},
        {"properties": {"a": {"minimum": 1, "type": "integer", "maximum": 3}, "b": {"enum": [{}]}}},
    ],
)
def test_texts_of_what_programs_ask_for_are_allowed(schema):
    rules = json_rules(schema)
    guide_text(rules)
    grammar = Grammar(rules)
    for seed in range(20):
        jsonschema.validate(json.loads(grammar.drawn(random.Random(seed))), schema)


def test_a_text_holds_what_no_box_could():
    grammar = Grammar(json_rules(TREE))
    value = {"name": 'a "b" {c} \\ \n é', "children": [{"name": "", "children": []}]}
    assert grammar.accepts(json.dumps(value))
    assert grammar.accepts(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    assert not grammar.accepts(json.dumps(value | {"more": 1}))
    assert not grammar.accepts(json.dumps({"name": "a"}))
    assert Grammar(json_object_rules()).accepts(json.dumps(value))
    assert not Grammar(json_object_rules()).accepts("[1]")


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=7),
)
def test_members_come_in_order_and_those_that_are_required_always(members):
    names = [f"p{place}" for place in range(len(members))]
    schema = {
        "type": "object",
        "properties": {name: {"type": "null"} for name in names},
        "required": [name for name, (needed, _) in zip(names, members, strict=True) if needed],
    }
    there = {
        name: None for name, (needed, given) in zip(names, members, strict=True) if needed or given
    }
    grammar = Grammar(json_rules(schema))
    assert grammar.accepts(json.dumps(there))
    for name in schema["required"]:
        less = {other: None for other in there if other != name}
        assert not grammar.accepts(json.dumps(less))


BOUNDS = st.none() | st.builds(
    Bound, st.decimals(-30, 30, places=2, allow_nan=False), st.booleans()
)


@settings(max_examples=300)
@given(BOUNDS, BOUNDS, st.decimals(-35, 35, places=3), st.integers(0, 3))
def test_a_number_is_allowed_exactly_if_it_is_within_its_bounds(low, high, value, places):
    value = round(value, places)
    within = (low is None or (low.value < value if low.open else low.value <= value)) and (
        high is None or (value < high.value if high.open else value <= high.value)
    )
    node = numbers(low, high)
    text = f"{value:f}"
    if value == 0 and text.startswith("-"):
        text = text[1:]
    assert (node is not None and accepts(Automaton.of(node), text)) == within, (text, low, high)


@given(st.none() | st.integers(-1200, 1200), st.none() | st.integers(-1200, 1200), st.data())
def test_an_integer_is_allowed_exactly_if_it_is_within_its_bounds(low, high, data):
    node = integers(low, high)
    value = data.draw(st.integers(-1300, 1300))
    within = (low is None or low <= value) and (high is None or value <= high)
    assert (node is not None and accepts(Automaton.of(node), str(value))) == within
    assert node is None or not accepts(Automaton.of(node), "007")


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("bounds", "written", "not_written"),
    [
        ({"minimum": -(2**53) + 1, "maximum": 2**53 - 1}, ["0", "-7", "9" * 15], ["9" * 16]),
        ({"exclusiveMinimum": 0, "maximum": 2**63 - 1}, ["1", "9" * 15], ["0", "-1"]),
        ({"minimum": -(2**63), "exclusiveMaximum": 1e308}, ["0", "-7"], []),
        ({"exclusiveMinimum": -(10**15), "maximum": float("inf")}, ["-" + "9" * 15], []),
    ],
)
def test_bounds_beyond_all_that_is_written_are_no_bounds(strict, bounds, written, not_written):
    for kind in ("integer", "number"):
        grammar = Grammar(json_rules({"type": kind, **bounds}, strict=strict))
        assert all(map(grammar.accepts, written))
        assert not any(map(grammar.accepts, [*not_written, "1e20"]))


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": "integer", "minimum": 2**53}, "more than 15 digits"),
        ({"type": "number", "maximum": -1e300}, "more than 15 digits"),
        ({"type": "number", "maximum": float("nan")}, "must be a number"),
        ([], "wrong at $: it is []"),
        (False, "wrong at $: it is false"),
        ({"type": "x"}, 'wrong at $.type: it is "x"'),
        ({"type": "integer", "multipleOf": 3}, "wrong at $.multipleOf: it is not supported"),
        ({"not": {}}, "wrong at $.not"),
        ({"$ref": "#/$defs/A"}, "nothing at that place"),
        ({"$ref": "http://x"}, "only places in the same schema"),
        ({"$ref": "#"}, "without end"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "without end"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "engines refuse"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "no number is within"),
        ({"type": "integer", "minimum": "3"}, "must be a number"),
        ({"type": "string", "maxLength": 10**9}, "from 0 to 1000"),
        ({"enum": list(range(MAX_SCHEMAS)), "type": "integer"}, None),
        ({"anyOf": [{"enum": list(range(MAX_SCHEMAS))}, {}]}, "more than 1,000 schemas"),
        ({"enum": ["x" * 300_000]}, "characters up to here"),
        ({"type": "object", "properties": {"a": 1}}, "wrong at $.properties.a"),
    ],
)
def test_a_fault_is_named_by_its_place(schema, complaint):
    if complaint is None:
        guide_text(json_rules(schema))
        return
    with pytest.raises(ConfigError) as caught:
        guide_text(json_rules(schema))
    assert complaint in caught.value.message


def test_hostile_schemas_are_refused_soon():
    deep = {}
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    with pytest.raises(ConfigError, match="levels deep"):
        json_rules(deep)
    laughs = {"$defs": {"a0": {"type": "null"}}}
    for place in range(1, 25):
        ref = {"$ref": f"#/$defs/a{place - 1}"}
        laughs["$defs"][f"a{place}"] = {"type": "array", "prefixItems": [ref] * 10}
    laughs["$ref"] = "#/$defs/a24"
    assert len(guide_text(json_rules(laughs))) < 20_000
    with pytest.raises(ConfigError, match="more than 1,000 parts"):
        inlined(laughs)
    with pytest.raises(ConfigError, match="levels deep"):
        json_rules({"$defs": {}, **{"$ref": "#/$defs/x"}, **chain(100)})


def chain(length):
    links = {f"x{place}": {"$ref": f"#/$defs/x{place + 1}"} for place in range(length)}
    return {"$defs": {**links, "x": {"$ref": "#/$defs/x0"}, f"x{length}": {"type": "null"}}}


def test_a_reader_that_is_not_strict_leaves_out_what_it_cannot_hold_to():
    schema = {"type": "integer", "multipleOf": 3, "not": {"const": 1}}
    assert Grammar(json_rules(schema, strict=False)).accepts("7")
    both = {"allOf": [{"type": "integer"}, {"minimum": 3}]}
    assert Grammar(json_rules(both, strict=False)).accepts('"anything"')


def test_a_schema_with_what_it_refers_to_inlined_can_stand_in_a_box():
    schema = {
        "$defs": {"Unit": {"enum": ["m", "km"], "title": "Unit"}},
        "type": "object",
        "properties": {"value": {"type": "integer"}, "unit": {"$ref": "#/$defs/Unit"}},
        "required": ["value", "unit"],
    }
    node = parse_schema(json.dumps(inlined(schema)))
    assert accepts(Automaton.of(node), '{"value": 3, "unit": "km"}')
    with pytest.raises(ConfigError, match="refers to itself"):
        inlined(TREE)


@given(st.text("<tolca> \n", max_size=30), st.sampled_from([("<tool>",), ("<too", "<tal>")]))
def test_free_text_leads_to_what_follows_the_first_of_its_words(text, words):
    after = Seq((literal("!"),))
    grammar = Grammar({"root": EMPTY} | text_before(words, "root", after))
    holds = any(word in text for word in words)
    assert grammar.accepts(text) == (not holds)
    assert all(char in ANY for char in text)
    if not holds:
        assert grammar.accepts(f"{text}{words[0]}!")
        assert not grammar.accepts(f"{text}{words[0]}?")
    guide_text({"root": Repeat(ANY, 0, None)} | text_before(words, "root", after))


@given(st.integers(0, 40), st.integers(0, 200), st.integers(0, 260))
def test_wide_repetitions_are_the_same_in_blocks(least, more, count):
    rules = {"root": Repeat(literal("a"), least, max(least + more, 1))}
    wanted = least <= count <= max(least + more, 1)
    assert Grammar(in_blocks(rules)).accepts("a" * count) == wanted
    assert ("count" in guide_text(rules)) == (max(least + more, 1) - least > BLOCK)


def test_bounds_are_read_as_they_are_written():
    schema = {"type": "number", "minimum": 0.1, "exclusiveMaximum": 1}
    grammar = Grammar(json_rules(schema))
    assert [
        value for value in ("0.1", "0.10", "0.09", "1", "0.999", "1.0") if grammar.accepts(value)
    ]
    assert not any(map(grammar.accepts, ("0.09", "1", "1.0", "-0.5", "0")))
    assert Decimal("0.1") == Decimal(repr(0.1))
