"""Calls of tools in texts: every form is read as it was written, however the text is cut."""

import itertools
import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount

from tts.gateway.answer.candidates import DrawnAnswer, canonical, vote
from tts.gateway.openai.errors import ApiError
from tts.gateway.openai.messages import Function, Tool
from tts.gateway.tools.forms import (
    FORMS,
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_ARGS,
    OWN,
    forced_call,
    form_of,
    new_call,
)
from tts.gateway.tools.parser import CallParser

NAMES = ("add", "get-weather", "x.y_1")
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.sampled_from('ab"\\{}[]<>/\n é|;'), max_size=8)
    | st.sampled_from(["</tool_call>", "<tool_call>", "[TOOL_CALLS]", "[ARGS]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", 'c"}']), inner, max_size=3)
    ),
    max_leaves=6,
)
calls = st.lists(
    st.tuples(st.sampled_from(NAMES), st.dictionaries(st.sampled_from("abc"), values, max_size=3)),
    min_size=1,
    max_size=3,
)
PIECES = [
    *("{", "}", "[", "]", "<", ">", ";", '"', "add", "<tool_call>", "</tool_call>", "[TOOL_CALLS]"),
    *("[ARGS]", "[CALL_ID]", "<|python_tag|>", "<tool", "[TOOL", "word", " ", "\n"),
    *('{"name":"add","arguments":{}}', '{"name":"none"}', '{"name":"add","parameters":{"a":1}}'),
    '{"a":[1]}',
]
fragments = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
forms = st.sampled_from(FORMS)


def read(form, text, cuts=(), max_calls=128):
    """Text and calls of a text that comes in pieces."""
    parser = CallParser(form, NAMES, max_calls=max_calls)
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    said, found = "", []
    for begin, end in itertools.pairwise(places):
        new, more = parser.feed(text[begin:end])
        said, found = said + new, found + more
    new, more = parser.end()
    assert parser.calls == found + more
    return said + new, [(c.function.name, json.loads(c.function.arguments)) for c in found + more]


@given(forms, calls, st.lists(st.integers(0, 10**6), max_size=20))
def test_calls_are_read_as_they_were_written_wherever_they_are_cut(form, calls, cuts):
    assert read(form, form.write(calls), cuts) == ("", calls)


@given(forms, st.sampled_from(["", "Sure, ", "Sure.\n\n"]), calls, st.lists(st.integers(0, 10**6)))
def test_text_before_calls_is_kept_apart(form, text, calls, cuts):
    if form is LLAMA:  # after text only what is marked is a call
        calls = calls[:1]
        written = f"{text}<|python_tag|>{form.write(calls)}"
    else:
        written = text + form.write(calls)
    assert read(form, written, cuts) == (text.rstrip(), calls)


@settings(max_examples=amount(150, 500))
@given(forms, fragments, st.lists(st.integers(0, 10**6), max_size=30))
def test_any_text_is_read_the_same_wherever_it_is_cut(form, text, cuts):
    whole = read(form, text)
    assert read(form, text, cuts) == whole
    assert read(form, text, range(len(text))) == whole
    if not whole[1]:
        assert whole[0] == text


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (HERMES, '<tool_call>{"name": "other", "arguments": {}}</tool_call>'),
        (HERMES, '<tool_call>{"name": "add", "arguments": [1]}</tool_call>'),
        (HERMES, '<tool_call>{"name": "add", "arguments": {"a": '),
        (HERMES, "<tool_call>add(1)</tool_call>"),
        (HERMES, '<tool_call>{"name": "add", "arguments": {"a": 1e999}}</tool_call>'),
        (HERMES, "<tool_call>" + '{"a":' * 5000 + "1" + "}" * 5000),
        (LLAMA, '{"answer": 42}'),
        (LLAMA, 'The call is {"name": "add", "parameters": {}}'),
        (MISTRAL, "[TOOL_CALLS][]"),
        (MISTRAL, '[TOOL_CALLS]other[ARGS]{"a": 1}'),
    ],
)
def test_what_is_no_call_stays_text(form, text):
    assert read(form, text) == (text, [])


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (HERMES, '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'),
        (HERMES, '<tool_call>{"name": "add", "parameters": "{\\"a\\": 1}"}'),
        (LLAMA, '{"name": "add", "parameters": {"a": 1}}'),
        (LLAMA, '<|python_tag|>{"type": "function", "name": "add", "parameters": {"a": 1}}'),
        (MISTRAL, '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "123456789"}]'),
        (MISTRAL, '[TOOL_CALLS]add{"a": 1}'),
        (MISTRAL_ARGS, '[TOOL_CALLS]add[CALL_ID]abc[ARGS]{"a": 1}'),
    ],
)
def test_the_spellings_of_models_are_read(form, text):
    assert read(form, text) == ("", [("add", {"a": 1})])


def test_calls_beyond_those_that_are_wanted_are_dropped():
    written = HERMES.write([("add", {"a": place}) for place in range(3)])
    assert read(HERMES, written, max_calls=1) == ("", [("add", {"a": 0})])


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", OWN),
        ("{% if tools %}<tool_call>{% endif %}", HERMES),
        ("{% if tools %}<|python_tag|>{% endif %}", LLAMA),
        ("{% if tools %}[AVAILABLE_TOOLS][TOOL_CALLS]{% endif %}", MISTRAL),
        ("{% if tools %}[AVAILABLE_TOOLS][TOOL_CALLS][ARGS]{% endif %}", MISTRAL_ARGS),
        ("{% if tools %}in some other way{% endif %}", OWN),
        ("{# <tool_call> #}{{ messages }}", OWN),
    ],
)
def test_the_form_is_that_of_the_template(template, form):
    assert form_of(template) is form


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "string"}},
    "required": ["a"],
}
TOOLS = [Tool(Function("add", parameters=SCHEMA)), Tool(Function("x.y_1"))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("tools", [TOOLS, TOOLS[:1]])
def test_an_output_under_the_guide_of_a_call_is_calls(form, several, tools):
    prefix, schema = forced_call(form, tools, several=several)
    wanted = json.loads(schema)
    arguments = {"a": 1, "b": "x"}
    call = {"name": "add", form.arguments: arguments}
    as_list = form in (MISTRAL, MISTRAL_ARGS)
    options = [arguments] if form is MISTRAL_ARGS and len(tools) == 1 else [call]
    options = [[call], [call] * 2] if as_list and options == [call] else options
    for option in options:
        valid = len(option) < 2 or several or not isinstance(option, list)
        assert jsonschema.Draft202012Validator(wanted).is_valid(option) == valid
        written = prefix + json.dumps(option, indent=1)
        count = len(option) if isinstance(option, list) else 1
        assert read(form, written) == ("", [("add", arguments)] * count)
    broken = json.loads(json.dumps(options[0]).replace('"a": 1', '"a": -1'))
    assert not jsonschema.Draft202012Validator(wanted).is_valid(broken)


def test_the_schemas_of_arguments_refer_to_their_own_definitions():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}
    root = {"properties": {"n": {"$ref": "#/$defs/n"}, "all": {"$ref": "#"}}, "required": ["n"]}
    tools = [
        *TOOLS,
        Tool(Function("f", parameters={**root, "$defs": {"n": node | {"required": []}}})),
    ]
    _, schema = forced_call(HERMES, tools, several=False)
    wanted = jsonschema.Draft202012Validator(json.loads(schema))
    assert wanted.is_valid({"name": "f", "arguments": {"n": {"next": {}}, "all": {"n": {}}}})
    assert not wanted.is_valid({"name": "f", "arguments": {"n": {"next": 1}}})
    assert not wanted.is_valid({"name": "f", "arguments": {"n": {}, "all": {}}})


@pytest.mark.parametrize(
    "parameters", [{"type": "string"}, {"$ref": "#/x"}, {"properties": {"a": {"type": "x"}}}]
)
def test_parameters_that_are_no_schema_of_arguments_are_named(parameters):
    with pytest.raises(ApiError) as refused:
        forced_call(HERMES, [*TOOLS, Tool(Function("f", parameters=parameters))], several=False)
    assert refused.value.param == "tools[2].function.parameters"


def test_candidates_vote_by_equal_names_and_arguments():
    def calling(arguments, score=None):
        return DrawnAnswer("", (new_call("add", arguments),), score)

    same, other = calling('{"a": 1, "b": 2}'), calling('{"a": 2}')
    weights = {canonical(same.calls[0]): 2.0, canonical(other.calls[0]): 1.0}
    found = vote([other, same, calling('{"b": 2, "a": 1}'), DrawnAnswer("text")])
    assert found == (1, weights)
    scored = [calling('{"a": 1}', 0.2), calling('{"a": 2}', 0.9), calling('{"a": 1}', 0.3)]
    assert vote(scored)[0] == 1
    assert vote([DrawnAnswer("It is 4.", score=0.9), calling("{}", 0.4)])[0] == 0
    assert (
        vote([DrawnAnswer(r"so \boxed{4}"), DrawnAnswer("no"), DrawnAnswer(r"\boxed{4}")])[0] == 0
    )
    assert vote([calling("{}", 0.0), DrawnAnswer("", score=0.0)])[0] == 0
