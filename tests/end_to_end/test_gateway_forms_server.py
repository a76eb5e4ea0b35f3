"""Forms and tools on the real server: its engines keep every grammar that the gateway makes."""

import json
import re
import threading
from typing import Literal

import jsonschema
import pydantic
import pytest
from tests.end_to_end.gateways import client, gateway, reply

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


FORM = {
    "type": "json_schema",
    "json_schema": {"name": "length", "schema": Length.model_json_schema()},
}


@pytest.fixture(scope="module")
def served_forms(served):
    with gateway(served) as address:
        yield address


@pytest.fixture(scope="module")
def api(served_forms):
    return client(served_forms)


def chat(api, **fields):
    return api.chat.completions.create(
        **{"model": "demo", "messages": QUESTION, "temperature": 1.5, "seed": 1, **fields}
    )


@pytest.mark.parametrize("model", ["demo", "demo:best-of-n", "demo:beam-search"])
@pytest.mark.parametrize("form", [Length, Plain])
def test_openais_client_parses_answers(api, model, form):
    for seed in range(3):
        answer = api.chat.completions.parse(
            model=model,
            messages=QUESTION,
            response_format=form,
            temperature=1.5,
            seed=seed,
            extra_body={"tts": {"n": 4}} if ":" in model else {},
        )
        assert isinstance(answer.choices[0].message.parsed, form)


def test_a_schema_may_refer_to_itself(api):
    node = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    for seed in range(4):
        said = chat(api, seed=seed, extra_body={"guided_json": schema}).choices[0]
        if said.finish_reason == "stop":
            jsonschema.validate(json.loads(said.message.content), schema)
        assert said.message.content.startswith('{"n":')


def test_small_models_end_their_answers_at_any_temperature(api):
    """JSON with any white space never ended: the model went on with line breaks."""
    for seed in range(20):
        said = chat(api, response_format=FORM, temperature=seed / 10, seed=seed).choices[0]
        assert said.finish_reason == "stop"
        Length.model_validate_json(said.message.content)


def test_streams_are_parsed(api):
    with api.chat.completions.stream(
        model="demo", messages=QUESTION, response_format=Length
    ) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Length)


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


@pytest.mark.parametrize("model", ["demo", "demo:majority-vote"])
@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("streams", [False, True])
def test_a_call_that_must_come_has_valid_arguments(api, model, choice, streams):
    asked = {
        "model": model,
        "messages": QUESTION,
        "tools": [DOUBLE],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "extra_body": {"tts": {"n": 4}} if ":" in model else {},
    }
    if streams:
        with api.chat.completions.stream(**asked) as stream:
            said = stream.get_final_completion().choices[0]
    else:
        said = api.chat.completions.create(**asked).choices[0]
    assert (said.finish_reason, said.message.content or None) == ("tool_calls", None)
    (call,) = said.message.tool_calls
    assert call.function.name == "double"
    jsonschema.validate(json.loads(call.function.arguments), DOUBLE["function"]["parameters"])


def test_a_model_that_may_call_and_does_not_answers(api):
    said = chat(api, tools=[DOUBLE], temperature=0).choices[0]
    assert said.message.content
    assert not said.message.tool_calls


def test_a_json_object_with_a_schema_is_one_of_the_schema(api):
    form = {"type": "json_object", "schema": Plain.model_json_schema()}
    answer = chat(api, response_format=form, max_tokens=120).choices[0]
    assert answer.finish_reason == "stop"
    Plain.model_validate_json(answer.message.content)


DATE = {"type": "string", "format": "date"}
TEXTS = [{"type": "string", "maxLength": 1000 - place} for place in range(50)]
HOSTILE = {
    "blocks": ({"guided_regex": "(?:[a-z]{1,1000}){1,1000}" * 120}, 400),
    "nested": ({"guided_regex": "(?:[a-z]{1,40}){1,40}"}, 400),
    "in a row": ({"guided_regex": "[a-z]{1,1000}" * 10}, 400),
    "optional": ({"guided_regex": "a?" * 2000}, 400),
    "exponential": ({"guided_regex": "((a|b)*a(a|b){12})*"}, 400),
    "stars": ({"guided_regex": "(([a-z]*)*)*" * 300}, 200),
    "10,000 states": ({"guided_regex": "(?:[a-z]{100}){100}"}, 200),
    "a long choice": ({"guided_choice": ["a" * 3_000_000]}, 400),
    "many choices": ({"guided_choice": [f"c{place}" for place in range(100_000)]}, 400),
    "texts": ({"guided_json": {"anyOf": TEXTS}}, 400),
    "an engine's texts": ({"guided_json": {"anyOf": [DATE, *TEXTS[:2]]}}, 400),
    "members": ({"guided_json": {"properties": {f"k{at}": DATE for at in range(900)}}}, 200),
    "schemas": ({"guided_json": {"anyOf": [{"anyOf": [DATE] * 99}] * 99}}, 400),
}


@pytest.mark.parametrize(("form", "status"), HOSTILE.values(), ids=HOSTILE)
def test_others_are_answered_while_a_hostile_form_is_dealt_with(served_forms, form, status):
    answers = []
    body = {"model": "demo", "messages": QUESTION, "max_tokens": 4}

    def ask():
        answers.append(reply(served_forms, "/v1/chat/completions", {**body, **form}))

    hostile = threading.Thread(target=ask)
    hostile.start()
    others = []
    while hostile.is_alive() or not others:
        others.append(reply(served_forms, "/v1/chat/completions", body).status_code)
    assert [each.status_code for each in answers] == [status], answers[0].text
    assert set(others) == {200}
