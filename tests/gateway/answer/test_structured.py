"""Forms of answers: which grammar a request asks for, and what a search makes of it."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.gateway.in_process import CHAT, TEXT, choice_of

from tts.engines.wire import EBNF, JSON_SCHEMA, Guide
from tts.gateway.answer.structured import output_form, schema_guide
from tts.gateway.openai.errors import ApiError
from tts.gateway.openai.messages import Function, Tool
from tts.gateway.openai.requests import ChatRequest
from tts.gateway.tools.forms import HERMES, forced_call

QUESTION = {"role": "user", "content": "Compute 2 + 3."}
SCHEMA = {
    "$defs": {"Unit": {"enum": ["m", "km"]}},
    "type": "object",
    "properties": {"value": {"type": "integer"}, "unit": {"$ref": "#/$defs/Unit"}},
    "required": ["value", "unit"],
    "additionalProperties": False,
}
JUDGED = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}},
    "required": ["score"],
}
PARAM = "response_format.json_schema.schema"
DATED = {"type": "string", "format": "date"}


def schema_format(schema, **more):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}


def form_of(**fields):
    said = {"model": "tiny", "messages": [QUESTION], **fields}
    return output_form(msgspec.convert(said, ChatRequest))


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"response_format": schema_format(SCHEMA)}, *schema_guide(json.dumps(SCHEMA))),
        ({"response_format": {"type": "json_object"}}, *schema_guide('{"type": "object"}')),
        (
            {"response_format": {"type": "json_object", "schema": JUDGED}},
            *schema_guide(json.dumps(JUDGED)),
        ),
        ({"guided_json": {"allOf": [JUDGED], "title": "A"}}, *schema_guide(json.dumps(JUDGED))),
        ({"guided_json": DATED}, JSON_SCHEMA, json.dumps(DATED)),
        ({"guided_json": json.dumps(JUDGED)}, *schema_guide(json.dumps(JUDGED))),
        ({"structured_outputs": {"json": JUDGED}}, *schema_guide(json.dumps(JUDGED))),
        ({"guided_regex": r"\d{2}"}, EBNF, "root ::= [0-9]{2,2}\n"),
        ({"structured_outputs": {"regex": "a+"}}, EBNF, 'root ::= "a"+\n'),
        ({"guided_choice": ["yes", "no"]}, EBNF, 'root ::= ("yes" | "no")\n'),
        ({"structured_outputs": {"choice": ["a\nb"]}}, EBNF, 'root ::= ("a\\U0000000ab")\n'),
    ],
)
def test_the_guide_is_what_the_request_says(fields, kind, text):
    assert form_of(**fields).guide == Guide(kind, text)


def test_a_schema_that_can_be_read_is_a_grammar_of_json_on_one_line():
    """An engine allows any white space in a schema's JSON; what holds dates it compiles itself."""
    assert schema_guide(json.dumps(JUDGED)).kind == EBNF
    assert schema_guide(json.dumps({"type": "array", "items": DATED})).kind == JSON_SCHEMA


def test_a_search_holds_its_boxes_to_an_expression_if_they_can_hold_it():
    assert form_of(guided_regex=r"\d+").in_box == {"answer_regex": r"\d+"}
    for fields in ({"guided_json": SCHEMA}, {"guided_regex": "}"}, {"guided_choice": ["a"]}):
        assert form_of(**fields).in_box == {}


def test_any_text_is_no_form():
    assert form_of() is None
    assert form_of(response_format={"type": "text"}) is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": schema_format({"type": "x"})}, PARAM),
        ({"response_format": schema_format({"pattern": "(?=a)"}, strict=True)}, PARAM),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_regex": "a("}, "guided_regex"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"guided_json": {}, "ignore_eos": True}, "guided_json"),
    ],
)
def test_what_is_no_form_is_named(fields, param):
    with pytest.raises(ApiError) as refused:
        form_of(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


KEYWORDS = [
    *("type", "properties", "required", "items", "anyOf", "enum", "const", "$ref", "allOf"),
    *("minimum", "exclusiveMaximum", "maxLength", "pattern", "prefixItems", "additionalProperties"),
]
odd_values = st.recursive(
    st.sampled_from(
        [None, True, False, 0, -1, 1.5, 10**400, "", "object", "array", "#", "#/a", "("]
    )
    | st.sampled_from(["integer", "string", "number", "^a$", "a{9}"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)
    ),
    max_leaves=8,
)
schemas = st.dictionaries(st.sampled_from(KEYWORDS), odd_values, max_size=4)


@settings(max_examples=amount(100, 300))
@given(schemas, st.booleans())
def test_any_schema_is_read_or_refused_by_name(schema, strict):
    tool = Tool(Function("f", parameters=schema, strict=strict))
    format = schema_format(schema, strict=strict)
    for param, read in (
        (PARAM, lambda: form_of(response_format=format).guide.text),
        ("tools", lambda: schema_guide(forced_call(HERMES, [tool], several=True)[1]).text),
    ):
        found = outcome(read)
        assert found
        if isinstance(found, ApiError):
            assert (found.status, found.param.startswith(param)) == (400, True)


def outcome(read):
    try:
        return read()
    except ApiError as error:
        return error


@pytest.mark.parametrize("streams", [False, True])
def test_plain_generation_follows_the_forms_grammar(ask_model, streams):
    fields = {"stream": streams, "response_format": schema_format(JUDGED, strict=True)}
    chat = CHAT, {"messages": [QUESTION], **fields}
    text = TEXT, {"prompt": "Compute 2 + 3.", **fields}
    answers, says = ask_model(lambda *_: '{"score": 5}', chat, text)
    assert choice_of(answers[0]) == (
        {"role": "assistant", "content": '{"score": 5}', **({} if streams else {"refusal": None})},
        "stop",
    )
    assert answers[1][0] == 200
    assert says.guides == [form_of(guided_json=JUDGED).guide] * 2


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("strategy", ["best-of-n", "beam-search"])
def test_a_searchs_answer_is_what_stands_in_the_box(ask_model, streams, strategy):
    search = {
        "model": f"tiny:{strategy}",
        "messages": [QUESTION],
        "stream": streams,
        "tts": {"n": 4, "progress": "none"},
        "guided_regex": r"\d m",
    }
    (answer,), says = ask_model(lambda *_: "It is \\boxed{5 m}.", (CHAT, search))
    message, finish = choice_of(answer)
    assert (message["content"], finish) == ("5 m", "stop")
    assert all('"{" answer "}" text' in guide.text for guide in says.guides)  # the rest is free
    if not streams:
        assert message["reasoning_content"] == "It is \\boxed{5 m}."
        assert answer[1]["tts"]["answer"] == "5 m"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("form", "step"),
    [(schema_format(JUDGED), r"So \boxed{5}."), (schema_format(SCHEMA), "It ends without a box.")],
)
def test_an_answer_that_stands_in_no_box_is_written_after_the_best_completion(
    ask_model, streams, form, step
):
    def say(prompt, place):
        return '{"score": 5}' if prompt.endswith("\\boxed{") else step

    search = {"messages": [QUESTION], "stream": streams, "response_format": form}
    (answer,), says = ask_model(say, (CHAT, {**search, "tts": {"n": 4}}))
    message, finish = choice_of(answer)
    assert (message["content"], finish) == ('{"score": 5}', "stop")
    assert says.prompts[-1].endswith(f"{step}\n\n\\boxed{{")
    assert says.guides[-1] == schema_guide(json.dumps(form["json_schema"]["schema"]))
    if not streams:
        usage = answer[1]["usage"]
        assert usage["completion_tokens"] > usage["completion_tokens_details"]["reasoning_tokens"]


@pytest.mark.parametrize("model", ["tiny", "tiny:beam-search"])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_choice": ["a"]}, "guided_choice"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs.regex"),
    ],
)
def test_an_engine_without_guides_is_named(ask_model, model, fields, param):
    request = CHAT, {"model": model, "messages": [QUESTION], **fields}
    ((status, said),), _ = ask_model(lambda *_: "", request, guided=False)
    assert (status, said["error"]["param"]) == (400, param)
    assert "guided_decoding" in said["error"]["message"]
