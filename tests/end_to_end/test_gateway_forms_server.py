"""Forms and tools on the real server, whose engines hold outputs to schemas and grammars.

xgrammar allows any white space between the parts of a JSON text, of which the tiny model may write
without end: what it has written by then must begin a text of the form.
"""

import json
import re
from typing import Literal

import jsonschema
import pydantic
import pytest
from tests.end_to_end.gateways import client, gateway

pytestmark = pytest.mark.server

QUESTION = [{"role": "user", "content": "Compute 12 + 30."}]
DOUBLE = {
    "type": "function",
    "function": {
        "name": "double",
        "parameters": {
            "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["n"],
        },
    },
}


class Unit(pydantic.BaseModel):
    name: Literal["m", "km"]


class Length(pydantic.BaseModel):
    value: int = pydantic.Field(ge=0, le=100)
    unit: Unit
    note: str | None = pydantic.Field(default=None, max_length=8)


class Plain(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    value: int
    units: list[Unit] = pydantic.Field(max_length=2)


class Node(pydantic.BaseModel):
    n: int
    next: "Node | None" = None


@pytest.fixture(scope="module")
def api(served):
    with gateway(served) as address:
        yield client(address)


def chat(api, **fields):
    return api.chat.completions.create(
        **{
            "model": "demo",
            "messages": QUESTION,
            "temperature": 1.5,
            "seed": 1,
            **fields,
        }
    )


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.mark.parametrize("form", [Length, Plain, Node])
@pytest.mark.parametrize("streams", [False, True])
def test_answers_follow_the_schemas_of_models(api, form, streams):
    for seed in range(2):
        asked = {"response_format": schema_format(form.model_json_schema()), "temperature": 1.9}
        said = chat(api, **asked, seed=seed, stream=streams)
        choices = [part.choices[0] for part in said] if streams else said.choices
        text = "".join((c.delta if streams else c.message).content or "" for c in choices)
        assert text.startswith("{")
        if choices[-1].finish_reason == "stop":
            form.model_validate_json(text)


@pytest.mark.parametrize("model", ["demo:best-of-n", "demo:beam-search"])
def test_a_search_ends_with_an_answer_in_the_form(api, model):
    form = schema_format({"enum": ["m", "km"]})
    said = api.chat.completions.create(
        model=model, messages=QUESTION, response_format=form, extra_body={"tts": {"n": 4}}
    )
    assert json.loads(said.choices[0].message.content) in ("m", "km")


def test_texts_follow_expressions_and_choices(api):
    for seed in range(3):
        fields = {"seed": seed, "extra_body": {"guided_regex": r"[a-c]{2}-\d{3}"}}
        assert re.fullmatch(r"[a-c]{2}-\d{3}", chat(api, **fields).choices[0].message.content)
        fields["extra_body"] = {"structured_outputs": {"choice": ["red fish", "blue\nfish"]}}
        assert chat(api, **fields).choices[0].message.content in ("red fish", "blue\nfish")
    answer = chat(api, response_format={"type": "json_object"}, max_tokens=60, seed=5)
    text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert text.startswith("{")
    assert finish == "length" or isinstance(json.loads(text), dict)


NAMED = {"type": "function", "function": {"name": "double"}}


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("model", ["demo", "demo:majority-vote"])
def test_a_call_that_must_come_has_valid_arguments(api, choice, model):
    options = {"tts": {"n": 4}} if ":" in model else {}
    asked = {"model": model, "tools": [DOUBLE], "tool_choice": choice, "temperature": 1.9}
    said = chat(api, **asked, extra_body=options).choices[0]
    for call in said.message.tool_calls or ():
        assert call.function.name == "double"
        jsonschema.validate(json.loads(call.function.arguments), DOUBLE["function"]["parameters"])
    assert said.message.tool_calls or said.finish_reason == "length"


def test_a_model_that_may_call_and_does_not_answers(api):
    said = chat(api, tools=[DOUBLE], temperature=0).choices[0]
    assert said.message.content
    assert not said.message.tool_calls
