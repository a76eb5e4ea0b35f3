"""Tools over the application: what the model is asked, and calls as clients read them."""

import json

import pytest
from tests.gateway.in_process import CHAT, choice_of

from tts.build.tokenizer import Tokenizer
from tts.engines.wire import EBNF
from tts.gateway.answer.structured import schema_guide
from tts.gateway.tools.forms import HERMES, LLAMA, MISTRAL, MISTRAL_ARGS, OWN

QUESTION = {"role": "user", "content": "Compute 2 + 3, then double it."}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": 'Adds <two> "numbers".',
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
DOUBLE = {"type": "function", "function": {"name": "double", "parameters": {"type": "object"}}}
TOOLS = [ADD, DOUBLE]
TEMPLATES = {
    HERMES: """{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}as <tool_call><|im_end|>{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    LLAMA: """{% for m in messages %}[{{ m.role }}]{% if m.role == 'tool' %}{{ m.content | tojson }}
{% elif m.tool_calls %}<|python_tag|>{{ m.tool_calls[0].function.arguments | tojson }}
{% else %}{{ m.content }}{% endif %}{% endfor %}
{% if tools %}{{ tools | tojson }}{% endif %}[assistant]""",
    MISTRAL: """{% for m in messages %}
{% if loop.last and tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}
[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls %}
{% if c.id | length != 9 %}{{ raise_exception('ids have 9 characters') }}{% endif %}
[TOOL_CALLS]{{ c.function | tojson }}{% endfor %}{% endfor %}[/INST]""",
    OWN: """{% for m in messages %}
{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no such role') }}{% endif %}
[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]""",
}
TEMPLATES[MISTRAL_ARGS] = TEMPLATES[MISTRAL].replace("{% endfor %}[/INST]", "{% endfor %}[ARGS]")


@pytest.fixture
def ask(ask_model, monkeypatch):
    """Answers of a model that says something, with a form's chat template; what was scored."""

    def asked(say, *bodies, form=HERMES, likes="", **options):
        monkeypatch.setattr(Tokenizer, "chat_template", TEMPLATES.get(form, form))
        scored = []

        def score(question, steps):
            scored.append(question)
            return 0.9 if likes in steps[-1] else 0.2

        requests = ((CHAT, {"messages": [QUESTION], **body}) for body in bodies)
        found, model = ask_model(say, *requests, score=score, **options)
        return found, {"generator": model, "scored": scored}

    return asked


def called(message):
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls", ())
    ]


@pytest.mark.parametrize("form", TEMPLATES)
@pytest.mark.parametrize("streams", [False, True])
def test_an_answer_calls_tools_in_the_templates_own_form(ask, form, streams):
    calls = [("add", {"a": 2, "b": 3}), ("double", {"of": "x"})]
    text = "Let me see." if form is not LLAMA else ""

    def say(prompt, place):
        assert "Adds" in prompt
        assert ("You have these tools" in prompt) is (form is OWN)
        return text + form.write(calls if form.parallel else calls[:1])

    (answer,), _ = ask(say, {"tools": TOOLS, "stream": streams}, form=form)
    message, finish = choice_of(answer)
    assert (message["role"], message["content"]) == ("assistant", text or None)
    assert (called(message), finish) == (calls if form.parallel else calls[:1], "tool_calls")
    ids = [call["id"] for call in message["tool_calls"]]
    assert len(set(ids)) == len(ids)
    assert {call["type"] for call in message["tool_calls"]} == {"function"}


def agent(prompt, place, form):
    """A model that adds, then doubles, then answers."""
    if "10!" in prompt:
        return "The answer is 10."
    name, arguments = ("double", {"of": 5}) if "5!" in prompt else ("add", {"a": 2, "b": 3})
    return form.write([(name, arguments)])


@pytest.mark.parametrize("form", TEMPLATES)
@pytest.mark.parametrize("fields", [{}, {"model": "tiny:best-of-n", "tts": {"n": 3}}])
@pytest.mark.parametrize("streams", [False, True])
def test_two_tools_are_called_one_after_the_other_and_answered(ask, form, fields, streams):
    messages, turns = [QUESTION], []
    body = {"tools": TOOLS, "stream": streams, **fields}
    for result in ("5!", '10! "so"\n', None):
        (answer,), _ = ask(
            lambda *seen: agent(*seen, form), {**body, "messages": messages}, form=form
        )
        message, finish = choice_of(answer)
        turns.append((called(message), finish))
        if result is not None:
            (call,) = message["tool_calls"]
            messages = [
                *messages,
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": result},
            ]
    assert turns == [
        ([("add", {"a": 2, "b": 3})], "tool_calls"),
        ([("double", {"of": 5})], "tool_calls"),
        ([], "stop"),
    ]
    assert message["content"] == "The answer is 10."


@pytest.mark.parametrize("form", TEMPLATES)
def test_a_call_that_must_come_begins_in_the_prompt_and_follows_a_grammar(ask, form):
    written = form.write([("add", {"a": 1, "b": 2})])

    def say(prompt, place):
        for begin in range(len(written), -1, -1):
            if prompt.endswith(written[:begin]):
                return written[begin:]

    named = function(name="add")
    bodies = [{"tools": TOOLS, "tool_choice": choice} for choice in ("required", named)]
    if form is MISTRAL_ARGS:  # an array, unless there is one tool
        bodies = bodies[1:]
    answers, given = ask(say, *bodies, *[{**each, "stream": True} for each in bodies], form=form)
    for answer in answers:
        message, finish = choice_of(answer)
        assert (called(message), finish) == ([("add", {"a": 1, "b": 2})], "tool_calls")
        assert message["content"] is None
    assert {guide.kind for guide in given["generator"].guides} == {EBNF}


def test_text_that_calls_nothing_is_an_answer_as_ever(ask):
    words = "It is 5 < 6 {not a call}. <tool"
    for fields in ({"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": []}):
        answers, given = ask(lambda *_: words, fields, {**fields, "stream": True})
        for answer in answers:
            message, finish = choice_of(answer)
            assert (message["content"], finish) == (words, "stop")
            assert "tool_calls" not in message
        shown = fields["tools"] and fields.get("tool_choice") != "none"
        assert all(("Adds" in prompt) is bool(shown) for prompt in given["generator"].prompts)
        assert given["generator"].guides == [None, None]


def test_one_call_at_most_where_several_are_not_wanted(ask):
    say = lambda *_: HERMES.write([("add", {"a": place, "b": 0}) for place in range(2)])  # noqa: E731
    (one, two), _ = ask(say, {"tools": TOOLS, "parallel_tool_calls": False}, {"tools": TOOLS})
    assert len(choice_of(one)[0]["tool_calls"]) == 1
    assert len(choice_of(two)[0]["tool_calls"]) == 2


def test_a_form_of_the_answer_needs_a_choice_of_tools(ask):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}
    may = {"tools": TOOLS, "response_format": form}
    (answer, (status, said)), given = ask(lambda *_: "42", {**may, "tool_choice": "none"}, may)
    assert choice_of(answer)[0]["content"] == "42"
    assert given["generator"].guides == [schema_guide('{"type": "integer"}')]
    assert (status, said["error"]["param"]) == (400, "response_format.json_schema.schema")


def test_equal_calls_of_candidates_add_up(ask):
    ways = ['{"a": 2, "b": 3}', '{"a": 9, "b": 9}', '{"b": 3, "a": 2}', "no call"]

    def say(prompt, place):
        way = ways[place % 4]
        return (
            f'<tool_call>{{"name": "add", "arguments": {way}}}</tool_call>' if "{" in way else way
        )

    body = {"tools": TOOLS, "tts": {"n": 4}}
    (voted,), given = ask(say, {**body, "model": "tiny:majority-vote"})
    message, finish = choice_of(voted)
    assert (called(message), finish) == ([("add", {"a": 2, "b": 3})], "tool_calls")
    told = voted[1]["tts"]
    assert told["votes"] == {'add({"a": 2, "b": 3})': 2.0, 'add({"a": 9, "b": 9})': 1.0}
    assert given["scored"] == []
    usage = voted[1]["usage"]
    assert usage["completion_tokens"] > usage["completion_tokens_details"]["reasoning_tokens"] > 0
    (ranked,), given = ask(say, {**body, "model": "tiny:best-of-n"}, likes="9")
    assert called(choice_of(ranked)[0]) == [("add", {"a": 9, "b": 9})]
    assert ranked[1]["tts"]["score"] == 0.9
    assert len(given["scored"]) == 4  # the texts differ, if the calls do not
    assert all(QUESTION["content"] in each for each in given["scored"])


def function(**fields):
    return {"type": "function", "function": {"name": "f", **fields}}


def call_of(arguments):
    return {"id": "123456789", **function(arguments=arguments)}


LOOKS_AHEAD = {"properties": {"a": {"pattern": "(?=a)"}}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [ADD, ADD]}, "tools"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [function(name="a b")]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": function(name="x")}, "tool_choice"),
        ({"tools": TOOLS, "continue_final_message": True}, "continue_final_message"),
        ({"tools": TOOLS, "tool_choice": "required", "ignore_eos": True}, "ignore_eos"),
        ({"tools": TOOLS, "tts": {"n": 2}, "logprobs": True}, "logprobs"),
        (
            {"messages": [QUESTION, {"role": "tool", "tool_call_id": "x", "content": "5"}]},
            "messages[1].tool_call_id",
        ),
        (
            {
                "tools": [function(strict=True, parameters=LOOKS_AHEAD)],
                "tool_choice": "required",
            },
            "tools[0].function.parameters",
        ),
        (
            {"messages": [QUESTION, {"role": "assistant", "tool_calls": [call_of("[1]")]}]},
            "messages",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(ask, fields, param):
    ((status, said),), _ = ask(lambda *_: "5", fields)
    assert (status, said["error"]["param"]) == (400, param), said


def test_an_engine_without_guides_cannot_be_made_to_call_but_may(ask):
    written = HERMES.write([("add", {"a": 1, "b": 2})])
    free, forced = {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "required"}
    (may, (status, said)), _ = ask(lambda *_: written, free, forced, guided=False)
    assert called(choice_of(may)[0]) == [("add", {"a": 1, "b": 2})]
    assert (status, said["error"]["param"]) == (400, "tool_choice")
    assert "guided_decoding" in said["error"]["message"]


def test_a_template_that_loses_a_tools_answer_is_named(ask):
    messages = [
        QUESTION,
        {"role": "assistant", "tool_calls": [call_of("{}")]},
        {"role": "tool", "tool_call_id": "123456789", "content": "lost"},
    ]
    loses = "{% if tools %}<tool_call>{{ tools }}{% endif %}{{ messages[0].content }}"
    body = {"messages": messages, "tools": TOOLS}
    ((status, said),), _ = ask(lambda *_: "", body, form=loses)
    assert status == 400
    assert "drops or changes message 3 of 3" in said["error"]["message"]


def test_filters_see_what_tools_are_for_and_what_they_were_called_with(ask, filters_of):
    filters = filters_of("- term: halcyon\n  action: redact\n")
    hidden = json.loads(json.dumps(ADD).replace("Adds", "Halcyon adds"))
    calls = [call_of('{"a": "halcyon"}')]
    asked = {"messages": [QUESTION, {"role": "assistant", "tool_calls": calls}, QUESTION]}
    answers, _ = ask(lambda *_: "5", {"tools": [hidden]}, asked, {"tools": TOOLS}, filters=filters)
    assert [status for status, _ in answers] == [400, 400, 200]
    assert {said["error"]["code"] for _, said in answers[:2]} == {"content_filter"}
