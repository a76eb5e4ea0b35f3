"""Schemas as pydantic writes them: each text of their grammars is a value of the model."""

from __future__ import annotations

import datetime
import enum
import json
import random
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import pydantic
import pytest
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, ConfigDict, Field
from tests.constraints.grammars import Grammar

from tts.build.errors import ConfigError
from tts.constraints.grammar import guide_text
from tts.constraints.json_grammar import json_rules


class Unit(enum.Enum):
    METRE = "m"
    QUOTED = 'a "b" \\'


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Place(BaseModel):
    """Where it is."""

    model_config = ConfigDict(extra="forbid")

    street: str = Field(min_length=1, max_length=5, description="The street's name")
    number: int = Field(ge=1, le=9999)
    flat: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=0, lt=10)]


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Nested(BaseModel):
    place: Place
    others: list[Place] = Field(min_length=1, max_length=3)
    unit: Unit
    level: Level = Level.LOW


class Unions(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    either: int | str | None
    several: list[Cat | Dog] = []
    yes: Literal[True, 1, "one", None]
    maybe: Place | None = None


class Maps(BaseModel):
    counts: dict[str, int]
    places: dict[str, Place] = Field(default_factory=dict)
    anything: Any = None
    pair: tuple[int, str]
    longer: tuple[float, ...] = ()


class Formats(BaseModel):
    id: uuid.UUID
    day: datetime.date
    at: datetime.datetime
    time: datetime.time
    share: float = Field(gt=0, lt=1)
    code: str = Field(pattern=r"^[A-Z]{2}-\d{3}$")
    on: bool = Field(default=False, title="On", examples=[True])


class Node(BaseModel):
    value: int
    children: list[Node] = []
    parent: Node | None = None


class First(BaseModel):
    second: Second | None = None


class Second(BaseModel):
    first: First | None = None


class Empty(BaseModel):
    pass


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Allowing(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class Renamed(BaseModel):
    value: int = Field(alias='the "value"\n')
    sharp: str = Field(alias="größe/#~")


class Holder(pydantic.RootModel[list[Place]]):
    pass


class Wide(BaseModel):
    safe: int = Field(ge=-(2**53) + 1, le=2**53 - 1)
    signed: int = Field(ge=-(2**63), le=2**63 - 1)
    positive: int = Field(gt=0, le=2**53)
    finite: float = Field(ge=-1e308, lt=1e308)


class Sums(BaseModel):
    amounts: set[int]
    price: Decimal
    step: int = Field(multiple_of=5)


STRICT = [
    *(Nested, Unions, Maps, Formats, Node, First, Empty, Forbidding, Allowing, Renamed, Holder),
    *(Place, Wide),
]
ROUNDS = 25


def drawn(schema, *, strict):
    rules = json_rules(schema, strict=strict)
    guide_text(rules)
    grammar = Grammar(rules)
    return [grammar.drawn(random.Random(seed)) for seed in range(ROUNDS)]


@pytest.mark.parametrize("model", STRICT, ids=lambda model: model.__name__)
def test_each_text_is_a_value_of_its_model(model):
    for text in drawn(model.model_json_schema(), strict=True):
        model.model_validate_json(text)


@pytest.mark.parametrize(
    "model", [each for each in STRICT if each not in (Maps, Holder)], ids=lambda m: m.__name__
)
def test_schemas_that_openais_client_makes_strict_are_read_too(model):
    for text in drawn(to_strict_json_schema(model), strict=True):
        model.model_validate_json(text)


def test_values_of_a_model_are_among_its_texts():
    place = {"street": "x", "number": 12, "flat": None}
    value = {"place": place, "others": [place], "unit": 'a "b" \\', "level": 2}
    grammar = Grammar(json_rules(Nested.model_json_schema()))
    assert grammar.accepts(Nested.model_validate(value).model_dump_json())
    assert grammar.accepts(json.dumps(value))
    tree = Node(value=1, children=[Node(value=2, parent=Node(value=3))])
    assert Grammar(json_rules(Node.model_json_schema())).accepts(tree.model_dump_json())


def test_what_cannot_be_held_to_is_refused_or_left_out():
    schema = Sums.model_json_schema()
    with pytest.raises(ConfigError, match="uniqueItems"):
        json_rules(schema)
    for text in drawn(schema, strict=False):
        value = json.loads(text)
        assert isinstance(value["amounts"], list)
        assert isinstance(value["step"], int)
