"""Schemas that do not compile in an engine are refused before, by their place."""

import json

import pytest

from tts.build.errors import ConfigError
from tts.constraints.schema_check import MAX_SCHEMAS, checked_schema

RIGHT = [
    {},
    {"type": "object"},
    {
        "$ref": "#/$defs/b",
        "$defs": {"b": {"type": "array", "items": {"$ref": "#/$defs/b"}}},
    },
    {"properties": {"pattern": {"type": "string"}, "enum": {"minimum": 1}, "$ref": {}}},
    {"type": ["number", "null"], "exclusiveMinimum": -0.5, "maximum": 12.25},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"type": "string", "maxLength": 0},
    {"type": "string", "format": "date"},
    {"enum": list(range(5000))},
    {"type": "integer", "minimum": 3, "maximum": 3},
    {"type": "string", "pattern": "^[a-c]{1,1000}$"},
    {"type": "string", "pattern": "^(([a-c]{1,40}){1,40}){1,40}$"},
]


@pytest.mark.parametrize("schema", RIGHT)
def test_what_compiles_is_left_as_it_is(schema):
    assert checked_schema(json.dumps(schema)) == schema


def deep(levels):
    schema = {}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ([], "wrong at $: "),
        (False, "wrong at $: it must be an object"),
        ({"type": "x"}, "wrong at $.type: "),
        ({"type": []}, "wrong at $.type: "),
        ({"type": "object", "properties": {"a": 1}}, "wrong at $.properties.a: "),
        ({"type": "object", "required": "a"}, "wrong at $.required: "),
        ({"anyOf": [{"type": "integer"}, {"type": "y"}]}, "wrong at $.anyOf[1].type: "),
        ({"anyOf": []}, "wrong at $.anyOf: "),
        ({"enum": []}, "wrong at $.enum: "),
        ({"$ref": "#/$defs/A"}, "nothing at that place"),
        ({"$ref": "#/anyOf/0", "anyOf": [{}]}, "nothing at that place"),
        ({"$ref": "http://x"}, "only places in the same schema"),
        ({"$ref": "#"}, "refers to itself"),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            },
            "refers to itself",
        ),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "wrong at $.maximum: no number"),
        ({"items": {"exclusiveMinimum": 3, "maximum": 3}}, "wrong at $.items.maximum: no number"),
        ({"type": "integer", "minimum": "3"}, "wrong at $.minimum: "),
        ({"minimum": 3, "exclusiveMinimum": True}, "wrong at $.exclusiveMinimum: "),
        ({"minLength": 3, "maxLength": 2}, "wrong at $.maxLength: it is 2, less than minLength"),
        ({"minItems": 3, "maxItems": 2}, "wrong at $.maxItems: it is 2, less than minItems"),
        ({"type": "string", "minLength": -1}, "wrong at $.minLength: "),
        ({"type": "string", "maxLength": 10**9}, "at most 100,000"),
        ({"pattern": "^a(?=b)$"}, "wrong at $.pattern: "),
        ({"pattern": r"(a)\1"}, "wrong at $.pattern: "),
        ({"pattern": "((a{1,1000}){1,1000}){1,1000}"}, "wrong at $.pattern: "),
        ({"anyOf": [{} for _ in range(MAX_SCHEMAS)]}, "more than 1,000 schemas"),
        ({"enum": ["x" * 300_000]}, "characters; at most"),
        (deep(100), "levels deep"),
    ],
)
def test_a_fault_is_named_by_its_place(schema, complaint):
    with pytest.raises(ConfigError) as caught:
        checked_schema(json.dumps(schema))
    assert complaint in caught.value.message


def test_a_text_that_is_no_schema_is_refused():
    for text in ("[1", '{"items":' * 5000 + "{}" + "}" * 5000):
        with pytest.raises(ConfigError):
            checked_schema(text)
