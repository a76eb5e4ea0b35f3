"""The events of a stream: each `data:` line is a chunk that OpenAI's client parses."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk

from tts.gateway.openai.answers import (
    DONE,
    AnswerEnd,
    AnswerPart,
    ChatEncoder,
    TextEncoder,
    TokenLogs,
    usage_of,
)
from tts.gateway.openai.messages import CalledFunction, ToolCall
from tts.gateway.openai.requests import Request, StreamOptions


def encoder(kind=ChatEncoder, usage=False):
    return kind("chat-1", Request(model='a "model"', stream_options=StreamOptions(usage)))


def chunks(data, kind=ChatCompletionChunk):
    *events, end = data.split(b"\n\n")
    assert end == b""
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)
    return [kind.model_validate(json.loads(event[6:]), strict=True) for event in events]


@given(text=st.text(min_size=1), index=st.integers(0, 200), usage=st.booleans())
def test_the_template_of_a_text_is_the_encoding_of_its_chunk(text, index, usage):
    made = encoder(usage=usage)
    role, chunk = chunks(made.events(AnswerPart(index, text)))
    assert role.choices[0].delta.role == "assistant"
    assert (chunk.choices[0].index, chunk.choices[0].delta.content) == (index, text)
    assert chunk.model == 'a "model"'
    assert [chunk] == chunks(made._chunk(index, made._delta(text)))
    made = encoder(TextEncoder, usage)
    raw = json.loads(made.events(AnswerPart(index, text))[6:])
    facts = {"index": index, "text": text, "logprobs": None, "finish_reason": None}
    assert raw["choices"] == [facts]
    assert raw == json.loads(made._chunk(index, made._delta(text))[6:])


def test_a_chat_is_told_part_by_part():
    made = encoder(usage=True)
    calls = [ToolCall(name, CalledFunction("add", "{}")) for name in "abc"]
    role, thought = chunks(made.events(AnswerPart(reasoning="so")))
    assert role.choices[0].delta.role == "assistant"
    assert thought.choices[0].delta.reasoning_content == "so"
    (progress,) = chunks(made.events(AnswerPart(tts={"steps": []})))
    assert progress.tts == {"steps": []}
    assert made.events(AnswerPart()) == b""
    told = b"".join(made.events(AnswerPart(calls=some)) for some in (calls[:2], calls[2:]))
    indices = [call.index for each in chunks(told) for call in each.choices[0].delta.tool_calls]
    assert indices == [0, 1, 2]
    end = AnswerEnd(usage_of(3, 4), {"gateway_ms": 1})
    last = made.events(AnswerPart(finish="stop", end=end))
    assert last.endswith(DONE)
    finish, counted = chunks(last.removesuffix(DONE))
    assert finish.choices[0].finish_reason == "stop"
    assert (counted.usage.total_tokens, counted.choices) == (7, [])
    assert counted.tts == {"gateway_ms": 1}


@given(st.floats(max_value=0, width=32, allow_nan=False, allow_infinity=False))
def test_log_probabilities_are_an_engines_in_few_digits(log_prob):
    logs = TokenLogs(["a"], [log_prob])
    (given_as,) = encoder(TextEncoder)._logprobs(logs)["token_logprobs"]
    assert np.float32(given_as) == np.float32(log_prob)
    assert len(repr(abs(given_as)).replace(".", "").partition("e")[0].strip("0")) <= 9
    assert encoder()._logprobs(logs)["content"][0]["logprob"] == given_as


def test_the_likeliest_tokens_have_the_token_itself_among_them():
    top = [("b", -0.5), ("a", -1.0), ("b", -3.0)]
    texts = encoder(TextEncoder)
    said = texts._logprobs(TokenLogs(["c"], [-2.0], [top]))
    assert said["token_logprobs"] == [-2.0]
    assert said["top_logprobs"] == [{"c": -2.0, "b": -0.5, "a": -1.0}]
    (entry,) = encoder()._logprobs(TokenLogs(["b"], [-0.5], [top]))["content"]
    assert [(each["token"], each["logprob"]) for each in entry["top_logprobs"]] == top
    assert entry["bytes"] == [98]
    offsets = texts._logprobs(TokenLogs(["ab", "", "c"], [-0.5] * 3, begin=5))["text_offset"]
    assert offsets == [5, 7, 7]
