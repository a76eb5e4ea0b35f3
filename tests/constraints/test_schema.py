"""Schemas: what is generated is JSON that a validator accepts; what is not supported is named."""

import json
import random

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.constraints.languages import accepts, drawn

from tts.base.errors import ConfigError
from tts.constraints import answer_constraint
from tts.constraints.regular import Automaton
from tts.constraints.schema import parse_schema, whole_rules

NAMES = st.sampled_from(["a", "value", "unit of it"])
LEAVES = st.one_of(
    st.sampled_from(["integer", "number", "boolean", "null"]).map(lambda kind: {"type": kind}),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    st.just({"type": "string", "pattern": "^[A-E]{1,2}$"}),
    st.lists(st.integers() | st.booleans() | st.text("ab é", max_size=3), min_size=1).map(
        lambda options: {"enum": options}
    ),
    st.integers().map(lambda value: {"const": value}),
    st.just({"type": ["integer", "null"]}),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "exclusiveMaximum": low + more},
        st.integers(-2000, 2000),
        st.integers(1, 2000),
    ),
)


def objects(inner):
    return st.dictionaries(NAMES, inner, max_size=3).flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties) or ["-"])).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": sorted(required & properties.keys()),
                "additionalProperties": False,
            }
        )
    )


def arrays(inner):
    return st.builds(
        lambda items, low, more: {
            "type": "array",
            "items": items,
            "minItems": low,
            **({} if more is None else {"maxItems": low + more}),
        },
        inner,
        st.integers(0, 2),
        st.none() | st.integers(0, 2),
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner),
        arrays(inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: {"anyOf": some}),
    ),
    max_leaves=5,
)


@given(SCHEMAS, st.integers())
def test_every_text_of_a_schema_is_json_that_it_allows(schema, seed):
    node = parse_schema(json.dumps(schema))
    choice = random.Random(seed)
    for _ in range(5):
        text = drawn(node, choice)
        jsonschema.validate(json.loads(text), schema)


@given(SCHEMAS, st.integers())
def test_a_value_is_allowed_in_the_usual_spellings(schema, seed):
    node = parse_schema(json.dumps(schema))
    automaton = Automaton.of(node)
    text = drawn(node, random.Random(seed))
    assert accepts(automaton, text)
    value = json.loads(text)
    if not any(isinstance(part, float) for part in flat(value)):  # 1.0 may have been written 1.00
        assert accepts(automaton, json.dumps(value, ensure_ascii=False))
        assert accepts(automaton, json.dumps(value, ensure_ascii=False, separators=(",", ":")))


TREE = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "pattern": '^["a]{1,3}$'},
        "next": {"$ref": "#/$defs/tree"},
        "any": {},
    },
    "additionalProperties": False,
}


@given(SCHEMAS | st.just({"$ref": "#/$defs/tree"}), st.integers())
def test_a_whole_output_has_any_text_and_may_refer_to_itself(schema, seed):
    schema = {"type": "array", "items": schema, "minItems": 1, "$defs": {"tree": TREE}}
    rules = whole_rules(schema)
    choice = random.Random(seed)
    for _ in range(5):
        text = drawn(rules["root"], choice, rules)
        jsonschema.validate(json.loads(text), schema)
        assert "\n" not in text


@given(
    st.sampled_from([2, 5, 8, 25, 100, 1000]),
    st.integers(-30_000, 30_000),
    st.integers(1000, 300_000),
    st.integers(-30_000, 330_000),
)
def test_multiples_within_bounds_and_no_others_are_written(step, low, more, value):
    schema = {"type": "integer", "multipleOf": step, "minimum": low, "maximum": low + more}
    automaton = Automaton.of(parse_schema(json.dumps(schema)))
    for each in (value, value // step * step, low // step * step, (low + more) // step * step):
        assert accepts(automaton, str(each)) == (low <= each <= low + more and each % step == 0)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "integer", "multipleOf": 7, "minimum": -9, "maximum": 20}, "-7 0 14", "1 21"),
        ({"type": "integer", "multipleOf": 5}, "-15 0 999999999999995", "7 5.0"),
        ({"type": "number", "multipleOf": 0.25}, "-0.25 3 3.50", "0.3 1e2"),
        ({"type": "number", "multipleOf": 2}, "4", "3 4.0"),
    ],
)
def test_multiples_without_bounds_and_of_fractions(schema, right, wrong):
    automaton = Automaton.of(parse_schema(json.dumps(schema)))
    assert all(accepts(automaton, text) for text in right.split())
    assert not any(accepts(automaton, text) for text in wrong.split())


@given(st.integers(-3000, 3000), st.integers(0, 3000), st.integers(-7000, 7000))
def test_integers_within_bounds_and_no_others_are_written(low, more, value):
    schema = {"type": "integer", "minimum": low, "maximum": low + more}
    automaton = Automaton.of(parse_schema(json.dumps(schema)))
    for each in (low, low + more, value, low - 1, low + more + 1, 0):
        assert accepts(automaton, str(each)) == (low <= each <= low + more)


def flat(value):
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from flat(part)
    else:
        yield value


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("[1", "cannot be read: it is not JSON"),
        ("[]", "wrong at $: it is [];"),
        ("{}", "wrong at $.type: there is none; allowed: object, array"),
        ('{"type": "objekt"}', 'wrong at $.type: it is "objekt"; allowed: object, array'),
        ('{"type": "number", "minimum": 3}', "wrong at $.minimum: it is not supported here"),
        ('{"type": "integer", "minimum": 0.5}', "wrong at $.minimum: it is 0.5; it must be an"),
        ('{"type": "integer", "multipleOf": 7}', "wrong at $.multipleOf: the last digits do not"),
        ('{"type": "number", "multipleOf": 0}', "wrong at $.multipleOf: it is 0; it must be a"),
        ('{"type": "integer", "minimum": 3, "maximum": 2}', "no integer is within its bounds"),
        ('{"type": "array"}', "an array needs items"),
        (
            '{"type": "object", "properties": {"a": {"type": "array", "items": {"type": "x"}}}}',
            'wrong at $.properties.a.items.type: it is "x"',
        ),
        ('{"type": "object", "required": ["a"]}', "'a' is none of the properties"),
        ('{"type": "object", "additionalProperties": true}', "only false is supported"),
        ('{"$ref": "#"}', "wrong at $.type"),
        ('{"type": "string", "pattern": "a"}', "must begin with ^ and end with $"),
        ('{"type": "string", "pattern": "^a($"}', "at $.pattern: The regular expression"),
        ('{"type": "string", "pattern": "^[{}]$"}', 'none of the characters " \\ { }'),
        ('{"type": "string", "maxLength": -1}', "it is -1; it must be from 0 to 1000"),
        ('{"enum": []}', "at least one entry"),
        ('{"anyOf": [{"type": "integer"}, {"type": "y"}]}', "wrong at $.anyOf[1].type"),
        ('{"enum": [1], "minimum": 0}', "wrong at $.minimum"),
    ],
)
def test_a_fault_is_named_by_its_place(schema, complaint):
    with pytest.raises(ConfigError) as caught:
        parse_schema(schema)
    assert complaint in caught.value.message


def test_a_constant_that_a_box_cannot_hold_is_refused():
    with pytest.raises(ConfigError, match="cannot stand in"):
        answer_constraint(None, '{"enum": ["}"]}', "\n\n")
