"""The Responses API: requests as the chats that they stand for, answers as OpenAI's client reads
them."""

import json

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from tests.gateway.in_process import RESPONSES, Says

from tts.base.errors import EndpointUnavailable
from tts.gateway.openai.errors import ApiError
from tts.gateway.openai.requests import read_request
from tts.gateway.openai.responses import ResponsesRequest, as_chat

EVENT = TypeAdapter(ResponseStreamEvent)
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'


class Breaks(Says):
    """It breaks off after its first words."""

    async def stream(self, call):
        async for new in super().stream(call):
            yield new
            raise EndpointUnavailable("It has gone.")


@pytest.fixture
def ask(ask_model):
    """The answer of a model that says something to a request; of a stream its events."""

    def asked(say, kind=Says, **body):
        ((status, said),), _ = ask_model(lambda *_: say, (RESPONSES, body), kind=kind)
        return status, events_of(said) if isinstance(said, str) else said

    return asked


def events_of(said):
    events = []
    for part in said.removesuffix("\n\n").split("\n\n"):
        if part.startswith(":"):
            continue
        name, data = part.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == len(events)
        events.append(event)
    return events


def chat_of(**body):
    request, _ = read_request(ResponsesRequest, json.dumps({"model": "tiny", **body}).encode())
    return as_chat(request)


def test_a_text_is_answered_as_the_client_reads_it(ask):
    status, said = ask("4", input="2 + 2", metadata={"a": "b"}, max_output_tokens=20)
    assert status == 200
    response = Response.model_validate(said)
    assert (response.status, response.output_text, response.store) == ("completed", "4", False)
    assert response.id.startswith("resp_")
    assert response.metadata == {"a": "b"}
    assert response.usage.output_tokens == 1
    assert response.usage.total_tokens == response.usage.input_tokens + 1


def test_what_the_limit_cut_off_is_incomplete(ask):
    _, said = ask("4 and more", input="2 + 2", max_output_tokens=2)
    response = Response.model_validate(said)
    assert response.status == response.output[0].status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    *_, last = ask("4 and more", input="2 + 2", max_output_tokens=2, stream=True)[1]
    assert last["type"] == "response.incomplete"


@pytest.mark.parametrize("say", ["4 and more", "", CALL, f"I call.{CALL}"])
def test_a_stream_has_openais_events_and_ends_with_the_whole_answer(ask, say):
    given = {"input": "2 + 2", "tools": [TOOL], "temperature": 0}
    _, whole = ask(say, **given)
    status, events = ask(say, **given, stream=True)
    assert status == 200
    for event in events:
        EVENT.validate_python(event)
    kinds = [event["type"].removeprefix("response.") for event in events]
    deltas = "output_text.delta " * kinds.count("output_text.delta")
    text = f"content_part.added {deltas}output_text.done content_part.done"
    call = "function_call_arguments.delta function_call_arguments.done"
    items = [*([] if say.startswith("<") else [text]), *([call] if CALL in say else [])]
    wanted = " ".join(f"output_item.added {item} output_item.done" for item in items)
    assert kinds == ["created", "in_progress", *wanted.split(), "completed"]
    assert [plain(item) for item in events[-1]["response"]["output"]] == [
        plain(item) for item in whole["output"]
    ]
    assert events[-1]["response"]["usage"] == whole["usage"]
    for event in events:
        if event["type"] == "response.output_item.done":
            assert event["item"] == events[-1]["response"]["output"][event["output_index"]]
    said = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    assert said == Response.model_validate(whole).output_text


def plain(item):
    return {name: value for name, value in item.items() if name not in ("id", "call_id")}


def test_a_search_is_a_response_as_well(ask):
    given = {"input": "2 + 2", "model": "tiny:majority-vote", "tts": {"n": 2}}
    _, whole = ask("\\boxed{4}", **given)
    response = Response.model_validate(whole)
    assert response.output_text == "\\boxed{4}"
    assert whole["tts"]["answer"] == "4"
    assert response.usage.output_tokens_details.reasoning_tokens > 0
    _, events = ask("\\boxed{4}", **given, stream=True)
    for event in events:
        EVENT.validate_python(event)
    assert events[-1]["response"]["tts"]["answer"] == "4"
    assert events[-1]["response"]["output"][0]["content"] == whole["output"][0]["content"]


def text(kind, content, **more):
    return [{"type": f"{kind}_text", "text": content, **more}]


def test_items_are_the_messages_of_a_chat():
    chat = chat_of(
        instructions="Be short.",
        input=[
            {"role": "user", "content": text("input", "2 + 3, doubled")},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "status": "completed",
                "content": text("output", "I call.", annotations=[]),
            },
            {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "5"},
            {"type": "function_call_output", "call_id": "b", "output": text("input", "10")},
        ],
    )
    assert [(m.role, m.text, [c.id for c in m.tool_calls or ()]) for m in chat.messages] == [
        ("system", "Be short.", []),
        ("user", "2 + 3, doubled", []),
        ("assistant", "I call.", ["a", "b"]),
        ("tool", "5", []),
        ("tool", "10", []),
    ]


def test_options_are_those_of_a_chat():
    schema = {"type": "object"}
    chat = chat_of(
        input="?",
        max_output_tokens=7,
        top_k=5,
        tools=[TOOL],
        tool_choice={"type": "function", "name": "add"},
        text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}},
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
    )
    assert (chat.limit, chat.top_k, chat.logprobs) == (7, 5, True)
    assert chat.tool_choice.function.name == chat.tools[0].function.name == "add"
    asked = chat.response_format.json_schema
    assert (asked.schema, asked.strict) == (schema, True)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "?", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "?", "conversation": "conv_1"}, "conversation"),
        ({"input": "?", "background": True}, "background"),
        ({"input": "?", "truncation": "auto"}, "truncation"),
        ({"input": "?", "n": 2}, "n"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"content": "?"}]}, "input[0].role"),
        ({"input": [{"type": "function_call", "name": "add"}]}, "input[0]"),
        ({"input": "?", "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": [{"type": "item_reference", "id": "1"}]}, "input[0].type"),
    ],
)
def test_what_needs_a_memory_or_is_no_conversation_is_refused_by_name(body, param):
    with pytest.raises(ApiError) as refused:
        chat_of(**body)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_an_error_after_the_first_event_is_told_in_both_ways_that_clients_look_for(ask):
    _, events = ask("4 and more", input="2 + 2", kind=Breaks, stream=True)
    error, failed = events[-2:]
    assert (error["type"], failed["type"]) == ("error", "response.failed")
    assert error["message"] == error["error"]["message"] == "The engines do not answer now."
    assert Response.model_validate(failed["response"]).error.code == "server_error"
