"""The events of a stream: each `data:` line is a chunk that OpenAI's client parses."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion
from openai.types.chat import ChatCompletionChunk

from tts.gateway.openai.answers import CHAT, TEXT, usage_of
from tts.gateway.openai.events import CHAT_CHUNK, TEXT_CHUNK, Events


def events(kind=CHAT_CHUNK, usage=False):
    return Events("chat-1", kind, 7, 'a "model"', usage=usage)


def parsed(data, kind=CHAT_CHUNK):
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    body = data[6:-2]
    assert b"\n" not in body
    model = ChatCompletionChunk if kind == CHAT_CHUNK else Completion
    return model.model_validate(json.loads(body), strict=True)


@pytest.mark.parametrize("kind", [CHAT_CHUNK, TEXT_CHUNK])
@given(text=st.text(), index=st.integers(0, 200), usage=st.booleans())
def test_the_template_of_a_text_is_the_encoding_of_its_chunk(kind, text, index, usage):
    made = events(kind, usage)
    if kind == TEXT_CHUNK:  # a chunk of text completions has the reason that it does not end
        raw = json.loads(made.text(index, text)[6:-2])
        assert raw["choices"][0]["finish_reason"] is None
        assert raw["choices"][0]["text"] == text
        assert raw == json.loads(made.choice(index, text)[6:-2])
        return
    chunk = parsed(made.text(index, text))
    assert chunk == parsed(made.choice(index, text)) or not text
    assert chunk.choices[0].delta.content == text
    assert chunk.choices[0].index == index
    assert chunk.model == 'a "model"'


def test_every_other_chunk_is_parsed_too():
    made = events(usage=True)
    assert parsed(made.role(2)).choices[0].delta.role == "assistant"
    assert parsed(made.choice(0, "", finish="stop")).choices[0].finish_reason == "stop"
    assert parsed(made.reasoning("so")).choices[0].delta.reasoning_content == "so"
    assert parsed(made.progress({"steps": []})).tts == {"steps": []}
    counted = parsed(made.usage(usage_of(3, 4), {"gateway_ms": 1}))
    assert counted.usage.total_tokens == 7
    assert counted.choices == []


@given(st.floats(max_value=0, width=32, allow_nan=False, allow_infinity=False))
def test_log_probabilities_are_an_engines_in_few_digits(log_prob):
    (given_as,) = TEXT.logprobs(["a"], [log_prob], [], 0)["token_logprobs"]
    assert np.float32(given_as) == np.float32(log_prob)
    assert len(repr(abs(given_as)).replace(".", "").partition("e")[0].strip("0")) <= 9
    assert CHAT.logprobs(["a"], [log_prob], [], 0)["content"][0]["logprob"] == given_as


def test_the_texts_of_tokens_have_their_places():
    assert TEXT.logprobs(["ab", "", "c"], [-0.5] * 3, [], 5)["text_offset"] == [5, 7, 7]


def test_the_likeliest_tokens_have_the_token_itself_among_them():
    top = [("b", -0.5), ("a", -1.0), ("b", -3.0)]
    said = TEXT.logprobs(["c"], [-2.0], [top], 0)
    assert said["token_logprobs"] == [-2.0]
    assert said["top_logprobs"] == [{"c": -2.0, "b": -0.5, "a": -1.0}]
    (entry,) = CHAT.logprobs(["b"], [-0.5], [top], 0)["content"]
    assert [(each["token"], each["logprob"]) for each in entry["top_logprobs"]] == top
