"""Requests are read by their types; what is wrong is named."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.gateway.openai.errors import ApiError
from tts.gateway.openai.requests import (
    NEUTRAL_VALUES,
    ChatRequest,
    CompletionRequest,
    PoolingRequest,
    TokenizeRequest,
    read_request,
)

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "1 + 1"}]}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
names = st.sampled_from([*ChatRequest.__struct_fields__, *NEUTRAL_VALUES, "mood"])


def read(kind=ChatRequest, **fields):
    return read_request(kind, msgspec.json.encode({**CHAT, **fields}))


def test_unknown_fields_are_named_and_empty_ones_say_nothing():
    request, ignored = read(mood="good", stop=None, user="me", tools=[])
    assert ignored == ["mood"]
    assert request.stops == []


def test_a_whole_number_is_an_integer_however_it_is_written():
    body = b'{"model": "demo", "prompt": [[5.0, 6]], "n": 2.0, "top_k": 1e1, "temperature": 1}'
    request, _ = read_request(CompletionRequest, body)
    assert (request.prompts, request.n, request.top_k) == ([[5, 6]], 2, 10)
    with pytest.raises(ApiError, match=r"got `float` - at `\$.n`"):
        read_request(CompletionRequest, body.replace(b"2.0", b"2.5"))


@pytest.mark.parametrize("depth", [300, 700, 950])
def test_what_is_nested_deeply_is_refused(depth):
    with pytest.raises(ApiError) as refused:
        read(messages=None, n=msgspec.Raw(b"[" * depth + b"1.0" + b"]" * depth))
    assert refused.value.status == 400


def test_a_literal_extra_body_is_part_of_the_request():
    request, ignored = read(extra_body={"continue_final_message": True, "x": 1})
    assert request.continue_final_message
    assert ignored == ["x"]


@pytest.mark.parametrize("name", sorted(NEUTRAL_VALUES))
def test_a_field_that_cannot_be_honoured_may_only_say_what_happens_anyway(name):
    for value in NEUTRAL_VALUES[name]:
        assert read(**{name: value})[1] == []
    with pytest.raises(ApiError) as refused:
        read(**{name: "something else"})
    assert (refused.value.status, refused.value.param) == (400, name)


@given(st.dictionaries(names, json_values, max_size=4))
def test_any_fields_are_read_or_refused(fields):
    try:
        outcome = read(**fields)[0]
    except ApiError as error:
        outcome = error
    if isinstance(outcome, ApiError):
        assert outcome.status == 400
        assert msgspec.json.decode(outcome.body())["error"]["message"]
    else:
        assert isinstance(outcome, ChatRequest)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(body):
    with pytest.raises(ApiError) as refused:
        read_request(ChatRequest, body)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("text", ["text"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["a", 1], None),
        ([1, "a"], None),
        (["a", [1]], None),
        ([[1], 1], None),
    ],
)
def test_prompts_are_texts_or_token_ids_one_or_several(prompt, prompts):
    request, _ = read(CompletionRequest, prompt=prompt)
    if prompts is not None:
        assert request.prompts == prompts
        return
    with pytest.raises(ApiError) as refused:
        _ = request.prompts
    assert (refused.value.status, refused.value.param) == (400, "prompt")


def test_max_completion_tokens_is_another_name():
    assert read(max_completion_tokens=5)[0].limit == 5
    assert read(max_tokens=6)[0].limit == 6


@pytest.mark.parametrize("kind", [ChatRequest, PoolingRequest, TokenizeRequest])
def test_a_chat_has_a_message(kind):
    with pytest.raises(ApiError, match="length >= 1"):
        read(kind, messages=[])


@pytest.mark.parametrize("token", [-1, 2**31, 2**70])
def test_a_token_id_is_one_that_engines_can_have(token):
    with pytest.raises(ApiError) as refused:
        read(stop_token_ids=[token])
    assert refused.value.status == 400
    read(stop_token_ids=[0, 2**31 - 1])
