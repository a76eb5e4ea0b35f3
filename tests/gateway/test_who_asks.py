"""Who asks, for how much, and under which id: in answers, in the record and in what is kept."""

import json
import re

import pytest
from tests.gateway.in_process import CHAT, KEY, Kept, key_ring

from tts.endpoints.shaping import Shaping
from tts.gateway.answer import completions
from tts.gateway.observability.ledger import Ledger
from tts.gateway.observability.recorder import Recorder
from tts.gateway.safety.limits import KeyLimits
from tts.gateway.safety.usage import read_usage

PLAIN = {"model": "tiny", "messages": [{"role": "user", "content": "Compute 2 + 2."}]}
TOOL = {"type": "function", "function": {"name": "add"}}
SEARCH = {**PLAIN, "model": "tiny:beam-search", "tts": {"n": 4, "seed": 1}}


def test_a_key_is_used_within_its_time_and_its_models_alone(ask):
    tokens = "/tokenize", {"prompt": "1"}, KEY
    ((status, answer),) = ask(tokens, keyring=key_ring(expires=1.0))
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    assert answer["error"]["message"] == "The API key k has expired."
    kept = Kept()
    replaced = key_ring(rotated=86_400.0, expires=1.0, is_replaced=True)
    ((status, answer),) = ask(tokens, keyring=replaced, recorder=kept)
    assert (status, [each.key for each in kept.ended]) == (401, ["k"])
    assert answer["error"]["message"] == (
        "This secret of the API key k was replaced on 1970-01-02. Ask for the new one."
    )
    assert ask(tokens, keyring=key_ring(expires=2e10))[0][0] == 200
    (status, answer), (one, _), (_, listed) = ask(
        (CHAT, {**SEARCH, "model": "tiny:mcts"}, KEY),
        ("/v1/models/tiny:mcts", None, KEY),
        ("/v1/models", None, KEY),
        keyring=key_ring(models=("tiny", "tiny:b*")),
    )
    assert (status, answer["error"]["code"], one) == (403, "model_not_allowed", 403)
    listed = [each["id"] for each in listed["data"]]
    assert listed == ["tiny", "tiny:best-of-n", "tiny:beam-search"]


@pytest.mark.parametrize(
    ("models", "path", "body", "status"),
    [
        (("tiny",), CHAT, PLAIN, 200),
        (("tiny",), CHAT, {**PLAIN, "tts": {"strategy": "best-of-n", "n": 2}}, 403),
        (("tiny",), CHAT, {**PLAIN, "budget": 2}, 403),
        (("tiny", "tiny:best-*"), CHAT, {**PLAIN, "tts": {"strategy": "best-of-n", "n": 2}}, 200),
        (("tiny",), CHAT, {**PLAIN, "budget": 2, "tools": [TOOL]}, 403),
        (("tiny:best-of-n",), "/tokenize", {"prompt": "1"}, 200),
        (("other", "other:*"), "/tokenize", {"prompt": "1"}, 403),
        (("other", "other:*"), "/detokenize", {"tokens": [1]}, 403),
        (("other", "other:*"), "/tokenizer_info", None, 403),
    ],
)
def test_a_key_runs_its_models_however_they_are_named(ask, models, path, body, status):
    ((found, answer),) = ask((path, body, KEY), keyring=key_ring(models=models))
    assert (found, status == 403) == (status, "model_not_allowed" in str(answer))


def test_a_request_is_charged_before_its_form_is_read(ask, monkeypatch):
    read = []
    monkeypatch.setattr(completions, "output_form", lambda request: read.append(request))
    found = ask(
        *[(CHAT, {**PLAIN, "guided_regex": "((a{1000}){1000}"}, KEY)] * 3,
        keyring=key_ring(KeyLimits(requests_per_minute=1)),
    )
    assert [status for status, _ in found[1:]] == [429, 429]
    assert len(read) == 1


@pytest.mark.parametrize("kept_addresses", [True, False])
def test_what_is_refused_is_recorded_with_its_address_and_no_tokens(ask, kept_addresses):
    kept = Kept()
    found = ask(
        *[(CHAT, body, KEY) for body in (PLAIN, SEARCH, {**SEARCH, "model": "none"})],
        (
            "/pooling",
            {**PLAIN, "messages": [*PLAIN["messages"], {"role": "assistant", "content": "4"}]},
            KEY,
        ),
        keyring=key_ring(KeyLimits(tokens_per_minute=1)),
        recorder=kept,
        keep_addresses=kept_addresses,
    )
    assert [status for status, _ in found] == [429, 429, 404, 429]
    for record in kept.ended:
        assert record.outcome == "refused"
        assert record.client == ("192.0.2.7" if kept_addresses else None)
        assert record.prompt_tokens == record.verifier_tokens == 0


def test_a_budget_holds_over_restarts_and_counts_searches(ask, file):
    body = {**SEARCH, "tts": {**SEARCH["tts"], "budget_tokens": 50}}

    def answered(budget):
        keyring, recorder = key_ring(KeyLimits(tokens_per_day=budget)), Recorder(Ledger(file))
        try:
            return ask((CHAT, body, KEY), keyring=keyring, recorder=recorder, whole=True)[0]
        finally:
            recorder.close()

    status, _, said = answered(1_000)
    usage = json.loads(said)["usage"]
    (kept,) = read_usage(file, "2000-01-01", "2999-12-31")
    assert (status, kept.spent_tokens) == (200, usage["total_tokens"])
    assert (kept.key, kept.model, kept.requests) == ("k", "tiny:beam-search", 1)
    next_needs = usage["prompt_tokens"] + 50
    status, headers, said = answered(kept.spent_tokens + next_needs - 1)
    assert (status, json.loads(said)["error"]["code"]) == (429, "insufficient_quota")
    assert 0 < int(headers["retry-after"]) <= 86_400
    assert answered(kept.spent_tokens + next_needs)[0] == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", [PLAIN, SEARCH], ids=["plain", "search"])
def test_a_request_has_one_id_everywhere(ask, body, stream):
    kept, names = Kept(), ("order-66:a", "no good", "")
    request = CHAT, {**body, "stream": stream}
    found = ask(*((*request, {"x-request-id": name}) for name in names), recorder=kept, whole=True)
    for name, (status, headers, said), record in zip(names, found, kept.ended, strict=True):
        first = said.partition(b"\n\n")[0].removeprefix(b"data: ") if stream else said
        told = json.loads(first)["id"]
        assert status == 200
        assert headers["x-request-id"] == told == record.id
        assert (told == name) == (name == "order-66:a")
        assert told == "order-66:a" or re.fullmatch("chatcmpl-[0-9a-f]{24}", told)


def test_what_changes_the_distribution_reaches_the_engine_or_is_refused(endpoints, ask):
    calls = []
    stream = endpoints["generator"].generate

    async def kept(call):
        calls.append(call)
        return await stream(call)

    endpoints["generator"].generate = kept
    honoured = (
        {"presence_penalty": 0.5, "min_p": 0.1, "logit_bias": {"7": -100}, "min_tokens": 2},
        {"store": True, "metadata": {"a": "b"}, "logit_bias": {}},
    )
    wrong = (
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"min_tokens": 5}, "min_tokens"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"presence_penalty": 1, "tts": {"n": 2}}, "presence_penalty"),
    )
    fields = [*honoured, *(each for each, _ in wrong)]
    found = ask(*((CHAT, {**PLAIN, "max_tokens": 4, **each}) for each in fields))
    assert [status for status, _ in found[:2]] == [200, 200]
    shaping = Shaping(2, 1.0, 0.5, 0.0, 0.1, ((7, -100.0),))
    assert [call.shaping for call in calls] == [shaping, None]
    for (status, answer), (_, param) in zip(found[2:], wrong, strict=True):
        assert (status, answer["error"]["param"]) == (400, param)
