"""Plain generation, whole and as a stream: what a client gets of each token."""

import json
import math

import pytest
from tests.endpoints.scripted import ScriptedVerifier
from tests.gateway.in_process import CHAT, TEXT, Streams, answers, chunks_of

from tts.endpoints.streaming import NewTokens
from tts.gateway.answer.completions import _conversation
from tts.gateway.openai.messages import ChatMessage

LETTERS = list(range(40, 60))
ASKED = {"messages": [{"role": "user", "content": "Compute 2 + 2."}], "max_tokens": 5}
PROMPT = {"prompt": "the answer is", "max_tokens": 5}


class Letters(Streams):
    """A generator that writes the same letters whatever it is asked, one by one."""

    async def stream(self, call):
        for place, token in enumerate(LETTERS[: call.max_new_tokens]):
            yield NewTokens([token], [-0.5] if call.log_probs else [], place == 19)


class Likeliest(Letters):
    """It tells of tokens that it did not write, too."""

    async def stream(self, call):
        async for new in super().stream(call):
            new.top = [[(new.ids[0], -0.5), (40, -1.0), (41, -2.0)][: call.top_log_probs]]
            yield new


@pytest.fixture
def ask(tiny_deployment):
    """The answer to a request, of a stream the list of its chunks; and the metrics then."""

    def asked(path, body, writer=Letters):
        given = {"generator": writer(), "verifier": ScriptedVerifier()}
        requests = (path, {"model": "tiny", **body}), ("/metrics",)
        (status, _, said), (_, _, metrics) = answers(tiny_deployment, given, *requests, whole=True)
        said = said.decode()
        if said.startswith("data:"):
            assert said.endswith("\n\ndata: [DONE]\n\n")
            return status, chunks_of(said), metrics.decode()
        return status, json.loads(said), metrics.decode()

    return asked


@pytest.fixture
def text(tokenizer):
    return tokenizer.decode(LETTERS[:5])


@pytest.mark.parametrize("n", [1, 2])
def test_a_chat_is_answered_with_all_its_samples_and_what_they_took(ask, text, n):
    status, answer, metrics = ask(CHAT, ASKED | {"n": n})
    assert (status, answer["object"], answer["model"]) == (200, "chat.completion", "tiny")
    assert [choice["index"] for choice in answer["choices"]] == list(range(n))
    for choice in answer["choices"]:
        assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
        assert (choice["finish_reason"], choice["logprobs"]) == ("length", None)
    usage = answer["usage"]
    assert usage["completion_tokens"] == 5 * n
    assert usage["total_tokens"] == usage["prompt_tokens"] + 5 * n
    assert usage["prompt_tokens"] > 5
    assert f'tts_gateway_tokens_total{{kind="answer",model="tiny"}} {5.0 * n}' in metrics


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("counted", [True, False])
def test_a_stream_of_a_chat_names_the_role_then_gives_the_text_and_the_end_of_each(
    ask, text, n, counted
):
    options = {"stream": True, "n": n, "stream_options": {"include_usage": counted}}
    status, chunks, metrics = ask(CHAT, ASKED | options)
    assert status == 200
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    *chunks, last = chunks if counted else [*chunks, None]
    for index in range(n):
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(c["delta"].get("content", "") for c in own) == text
        assert [c["finish_reason"] for c in own if c["finish_reason"]] == ["length"]
        assert own[-1]["finish_reason"] == "length"
    told = chunks[-1]
    if counted:
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 5 * n
        assert {chunk["usage"] for chunk in chunks} == {None}
        told = last
    assert told["tts"]["gateway_ms"] >= 0
    assert sum("tts" in chunk for chunk in [*chunks, last] if chunk) == 1
    assert f'tts_gateway_tokens_total{{kind="answer",model="tiny"}} {5.0 * n}' in metrics


def test_a_text_has_sixteen_tokens_unless_more_are_asked_for(ask):
    _, answer, _ = ask(TEXT, {"prompt": "the answer is"})
    assert answer["usage"]["completion_tokens"] == 16  # as OpenAI's


async def read(replicas, call, key, on_server):
    """The log-probabilities of a prompt, as a generator behind a server has them."""
    ids = call.input_ids.tolist()
    rest = [-0.25] * (len(ids) - 1)
    top = [[], *([(40, -0.125)] for _ in rest)] if call.top_log_probs else []
    return NewTokens(ids, [math.nan, *rest], top=top)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("most", [0, 2])
def test_a_prompt_is_given_back_with_its_log_probabilities(
    ask, tokenizer, monkeypatch, most, streams
):
    monkeypatch.setattr("tts.gateway.output.generation.routed_reading", read)
    prompt = "Compute 2 + 2."
    asked = {"prompt": prompt, "max_tokens": most, "echo": True, "logprobs": 1, "stream": streams}
    status, said, _ = ask(TEXT, asked, Likeliest)
    assert status == 200
    choices = [choice for answer in (said if streams else [said]) for choice in answer["choices"]]
    ids = tokenizer.encode(prompt)
    drawn = [tokenizer.decode([letter]) for letter in LETTERS[:most]]
    assert "".join(each["text"] for each in choices) == prompt + "".join(drawn)
    logs = [each["logprobs"] for each in choices if each["logprobs"]]
    given = [value for each in logs for value in each["token_logprobs"]]
    assert given == [None] + [-0.25] * (len(ids) - 1) + [-0.5] * most
    first, second, *_ = [row for each in logs for row in each["top_logprobs"]]
    assert (first, sorted(second.values())) == (None, [-0.25, -0.125])
    assert choices[-1]["finish_reason"] == "length"


def test_a_prompt_is_given_back_as_text_by_any_generator(ask, text):
    _, said, _ = ask(TEXT, PROMPT | {"echo": True, "n": 2})
    assert [each["text"] for each in said["choices"]] == [PROMPT["prompt"] + text] * 2
    assert said["usage"]["completion_tokens"] == 10


@pytest.mark.parametrize("streams", [True, False])
def test_log_probabilities_are_those_of_each_token(ask, tokenizer, streams):
    status, said, _ = ask(CHAT, ASKED | {"stream": streams, "logprobs": True})
    assert status == 200
    choices = [choice for answer in (said if streams else [said]) for choice in answer["choices"]]
    tokens = [
        token for choice in choices for token in (choice["logprobs"] or {"content": []})["content"]
    ]
    letters = [tokenizer.decode([letter]) for letter in LETTERS[:5]]
    assert [token["token"] for token in tokens] == letters
    assert {token["logprob"] for token in tokens} == {-0.5}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("path", "asked"),
    [(CHAT, ASKED | {"logprobs": True, "top_logprobs": 2}), (TEXT, PROMPT | {"logprobs": 2})],
)
def test_the_likeliest_tokens_stand_beside_those_of_an_answer(ask, path, asked, streams):
    status, said, _ = ask(path, asked | {"stream": streams}, Likeliest)
    assert status == 200
    choices = [choice for answer in (said if streams else [said]) for choice in answer["choices"]]
    rows = []
    for logs in filter(None, (choice["logprobs"] for choice in choices)):
        if path == TEXT:
            rows += [list(row.values()) for row in logs["top_logprobs"]]
        else:
            rows += [[e["logprob"] for e in each["top_logprobs"]] for each in logs["content"]]

    assert rows[1:] == [[-0.5, -1.0]] * 4


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        (TEXT, {"n": 65, "prompt": ["1", "2"]}, "130 choices"),
        (TEXT, {"best_of": 3}, "best_of is not supported"),
        (TEXT, {"echo": True, "logprobs": 1}, "echo is not supported by this engine"),
        (TEXT, {"max_tokens": 0}, "max_tokens is 0, and nothing is to be given back"),
        (CHAT, {"echo": True}, "echo is not supported"),
        (TEXT, {"logprobs": 2}, "gives no such log-probabilities"),
        (TEXT, {"prompt": ""}, "A prompt is empty"),
        (TEXT, {"prompt": [[1], []]}, "A prompt is empty"),
        (CHAT, {"top_logprobs": 2}, "top_logprobs needs logprobs"),
    ],
)
def test_what_is_not_supported_is_said(ask, path, fields, said):
    status, answer, _ = ask(path, (ASKED if path == CHAT else PROMPT) | fields)
    assert status == 400
    assert said in answer["error"]["message"]


def test_all_turns_of_a_conversation_go_by_its_beginning():
    """Where its prefix is cached."""
    system, asked, said = (ChatMessage(role, role) for role in ("system", "user", "assistant"))
    first = _conversation([system, asked])
    assert first == _conversation([system, asked, said, asked])
    assert first != _conversation([asked])
    assert _conversation([said]) == _conversation([said, system])  # without a question
