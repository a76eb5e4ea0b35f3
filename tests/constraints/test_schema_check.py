"""Schemas that do not compile in an engine are refused before, by their place; others stay."""

from __future__ import annotations

import datetime
import enum
import json
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, ConfigDict, Field

from tts.base.errors import ConfigError
from tts.constraints.schema_check import MAX_SCHEMAS, checked_schema, require_light


class Unit(enum.Enum):
    METRE = "m"
    QUOTED = 'a "b" \\'


class Level(enum.IntEnum):
    LOW = 1


class Place(BaseModel):
    """Where it is."""

    model_config = ConfigDict(extra="forbid")

    street: str = Field(min_length=1, max_length=5, description="The street's name")
    number: int = Field(ge=1, le=9999)
    flat: str | None = None
    unit: Unit
    level: Level = Level.LOW


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=0, lt=10)]


class Dog(BaseModel):
    model_config = ConfigDict(extra="allow")

    kind: Literal["dog"]


class Unions(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    either: int | str | None
    several: list[Cat | Dog] = []
    yes: Literal[True, 1, "one", None]
    others: list[Place] = Field(min_length=1, max_length=3)


class Maps(BaseModel):
    counts: dict[str, int]
    places: dict[str, Place] = Field(default_factory=dict)
    anything: Any = None
    pair: tuple[int, str]
    longer: tuple[float, ...] = ()


class Formats(BaseModel):
    id: uuid.UUID
    day: datetime.date
    share: float = Field(gt=0, lt=1)
    code: str = Field(pattern=r"^[A-Z]{2}-\d{3}$")
    on: bool = Field(default=False, title="On", examples=[True])
    amounts: set[int]
    price: Decimal
    step: int = Field(multiple_of=5)


class Node(BaseModel):
    value: int = Field(alias='the "value"\n')
    sharp: str = Field(alias="größe/#~")
    children: list[Node] = []
    parent: Node | None = None


@pytest.mark.parametrize("schema_of", [BaseModel.model_json_schema.__func__, to_strict_json_schema])
@pytest.mark.parametrize("model", [Unions, Maps, Formats, Node], ids=lambda model: model.__name__)
def test_schemas_of_models_pass_the_check_as_they_are(model, schema_of):
    if schema_of is to_strict_json_schema and model is Maps:
        pytest.skip("OpenAI's client makes no schema of it")
    schema = schema_of(model)
    assert checked_schema(json.dumps(schema)) == schema


class Wide(BaseModel):
    safe: int = Field(ge=-(2**53) + 1, le=2**53 - 1)
    signed: int = Field(ge=-(2**63), le=2**63 - 1)
    finite: float = Field(ge=-1e308, lt=1e308)


def test_bounds_beyond_all_integers_are_left_out_and_patterns_unless_they_are_strict():
    bounds = checked_schema(json.dumps(Wide.model_json_schema()))["properties"]
    assert bounds["safe"] == Wide.model_json_schema()["properties"]["safe"]
    assert bounds["signed"]["maximum"] == 2**63 - 1
    assert bounds["finite"].keys() == {"title", "type"}
    text = '{"properties": {"a": {"type": "string", "pattern": "^(?!b)"}}}'
    with pytest.raises(ConfigError, match=r"\$\.properties\.a\.pattern"):
        checked_schema(text)
    assert checked_schema(text, strict=False) == {"properties": {"a": {"type": "string"}}}


TEXT = {"type": "string", "maxLength": 9}
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
    {"type": "string", "pattern": "^(([a-c]{1,4}){1,4}){1,4}$"},
    {"anyOf": [TEXT] * 32},
]


@pytest.mark.parametrize("schema", RIGHT)
def test_what_compiles_is_left_as_it_is(schema):
    assert checked_schema(json.dumps(schema)) == schema


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
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "refers to itself"),
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
        ({"pattern": "^(?:[a-z]{1,40}){1,40}$"}, "can be read in too many ways"),
        ({"anyOf": [{} for _ in range(MAX_SCHEMAS)]}, "more than 1,000 schemas"),
        ({"anyOf": 1, "allOf": [1] * MAX_SCHEMAS}, "more than 1,000 schemas"),
        ({"anyOf": [TEXT] * 33}, "may begin at one place"),
        (
            {"oneOf": [{"$ref": "#/$defs/a"}] * 2, "$defs": {"a": {"anyOf": [TEXT] * 17}}},
            "may begin at one place",
        ),
        ({"enum": ["x" * 300_000]}, "characters; at most"),
        ('{"items":' * 100 + "{}" + "}" * 100, "levels deep"),
        ('{"items":' * 5000 + "{}" + "}" * 5000, ""),
        ("[1", "is not JSON"),
    ],
)
def test_a_fault_is_named_by_its_place(schema, complaint):
    with pytest.raises(ConfigError) as caught:
        checked_schema(schema if isinstance(schema, str) else json.dumps(schema))
    assert complaint in caught.value.message


def variant(kind):
    return {"type": "object", "properties": {"kind": {"const": kind}, "text": TEXT}}


DATE = {"type": "string", "format": "date"}


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"anyOf": [DATE] * 16}, None),
        ({"anyOf": [TEXT, {"type": "null"}], "format": "date"}, None),
        ({"oneOf": [{"$ref": "#/$defs/a"}, variant("b")], "$defs": {"a": variant("a")}}, None),
        ({"anyOf": [variant("a"), variant("a")]}, "may begin at one place"),
        ({"properties": {"a": DATE, "b": TEXT, "c": {"pattern": "^(a{1,9},)+$"}}}, "too complex"),
        ({"anyOf": [DATE, TEXT]}, "may begin at one place"),
    ],
)
def test_what_an_engines_own_grammar_takes_too_long_for_is_refused(schema, complaint):
    schema = checked_schema(json.dumps(schema))
    if complaint is None:
        require_light(schema)
    else:
        with pytest.raises(ConfigError, match=complaint):
            require_light(schema)
