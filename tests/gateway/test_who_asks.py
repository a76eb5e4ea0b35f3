"""Who asks, for how much, and under which id: in answers, in the record and in what is kept."""

import asyncio
import json
import re
from types import SimpleNamespace

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.gateway.in_process import answered, post, serving

from tts.build.tokenizer import Tokenizer
from tts.endpoints.base import Shaping
from tts.gateway.ledger import Ledger
from tts.gateway.observability import Recorder
from tts.gateway.safety import ApiKey, KeyLimits, read_usage

PATH = "/v1/chat/completions"
ASKED = [{"role": "user", "content": "Compute 2 + 2."}]


@pytest.fixture
def endpoints(tokenizer_folder):
    tokenizer = Tokenizer(tokenizer_folder)
    words = [tokenizer.encode(word) for word in ("1", "22", " + ", r"\boxed{4}")]
    return {
        "generator": ScriptedGenerator(words, tokenizer.encode("\n\n")),
        "verifier": ScriptedVerifier(),
    }


def search_by(model):
    return PATH, {"model": model, "messages": ASKED, "tts": {"n": 4, "seed": 1}}


def test_a_key_is_used_within_its_time_and_its_models_alone(tiny_deployment, endpoints):
    def ring(**fields):
        key = ApiKey("k", "k", KeyLimits(), 0.0, None, **fields)
        return SimpleNamespace(required=True, find=lambda said: key)

    async def go(keyring, path, body, method="POST"):
        async with serving(tiny_deployment, endpoints, keyring=keyring) as app:
            return await post(app, path, body, method, authorization="Bearer k")

    status, answer = asyncio.run(go(ring(expires=1.0), "/tokenize", {"prompt": "1"}))
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    assert answer["error"]["message"] == "The API key k has expired."
    assert asyncio.run(go(ring(expires=2e10), "/tokenize", {"prompt": "1"}))[0] == 200

    some = ring(models=("tiny", "tiny:b*"))
    path, body = search_by("tiny:mcts")
    status, answer = asyncio.run(go(some, path, body))
    assert (status, answer["error"]["code"]) == (403, "model_not_allowed")
    assert asyncio.run(go(some, "/v1/models/tiny:mcts", None, "GET"))[0] == 403
    _, listed = asyncio.run(go(some, "/v1/models", None, "GET"))
    listed = [each["id"] for each in listed["data"]]
    assert listed == ["tiny", "tiny:best-of-n", "tiny:beam-search"]


def test_a_budget_holds_over_restarts_and_counts_searches(tiny_deployment, endpoints, tmp_path):
    file = tmp_path / "gateway" / "gateway.db"
    path, body = search_by("tiny:beam-search")
    body["tts"]["budget_tokens"] = 50

    async def go(budget):
        key = ApiKey("k", "k", KeyLimits(tokens_per_day=budget), 0.0, None)
        keyring = SimpleNamespace(required=True, find=lambda said: key)
        recorder = Recorder(Ledger(file))
        try:
            app = serving(tiny_deployment, endpoints, keyring=keyring, recorder=recorder)
            async with app as app:
                return await answered(app, path, body, "POST", authorization="Bearer k")
        finally:
            recorder.close()

    status, _, said = asyncio.run(go(1_000))
    usage = json.loads(said)["usage"]
    (kept,) = read_usage(file, "2000-01-01", "2999-12-31")
    assert (status, kept.spent) == (200, usage["total_tokens"])
    assert (kept.key, kept.model, kept.requests) == ("k", "tiny:beam-search", 1)
    next_needs = usage["prompt_tokens"] + 50
    status, headers, said = asyncio.run(go(kept.spent + next_needs - 1))
    assert (status, json.loads(said)["error"]["code"]) == (429, "insufficient_quota")
    assert 0 < int(headers["retry-after"]) <= 86_400
    assert asyncio.run(go(kept.spent + next_needs))[0] == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["tiny", "tiny:beam-search"])
def test_a_request_has_one_id_everywhere(tiny_deployment, endpoints, model, stream):
    path, body = search_by(model)
    body["stream"] = stream
    if model == "tiny":
        del body["tts"]
    recorder = Recorder()
    ended = []
    recorder.metrics.count = ended.append

    async def go(**headers):
        async with serving(tiny_deployment, endpoints, recorder=recorder) as app:
            return await answered(app, path, body, "POST", **headers)

    for given in ({"x-request-id": "order-66:a"}, {"x-request-id": "no good"}, {}):
        status, headers, said = asyncio.run(go(**given))
        first = said.partition(b"\n\n")[0].removeprefix(b"data: ") if stream else said
        found = json.loads(first)["id"]
        assert status == 200
        assert headers["x-request-id"] == found == ended[-1].id
        assert (found == "order-66:a") == (given.get("x-request-id") == "order-66:a")
        assert found == "order-66:a" or re.fullmatch("chatcmpl-[0-9a-f]{24}", found)


def test_an_unstreamed_search_says_what_the_gateway_took(tiny_deployment, endpoints):
    path, body = search_by("tiny:beam-search")

    async def go():
        async with serving(tiny_deployment, endpoints) as app:
            return await post(app, path, body)

    _, answer = asyncio.run(go())
    assert answer["tts"]["gateway_ms"] > 0


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models"])
def test_what_can_be_got_can_be_asked_for_by_head(tiny_deployment, endpoints, path):
    async def go(method):
        async with serving(tiny_deployment, endpoints) as app:
            return await answered(app, path, None, method)

    (status, headers, said), (other, others, nothing) = (
        asyncio.run(go("GET")),
        asyncio.run(go("HEAD")),
    )
    assert (status, other) == (200, 200)
    assert said
    assert nothing == b""
    assert headers["content-length"] == others["content-length"] == str(len(said))


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank"])
def test_a_path_without_anything_names_what_there_is(tiny_deployment, endpoints, path):
    async def go():
        async with serving(tiny_deployment, endpoints) as app:
            return await post(app, path, {"input": "1"})

    status, answer = asyncio.run(go())
    assert status == 404
    assert "/v1/completions, /v1/responses and /pooling (scores)" in answer["error"]["message"]


def test_what_changes_the_distribution_reaches_the_engine_or_is_refused(tiny_deployment, endpoints):
    calls = []
    stream = endpoints["generator"].generate

    async def kept(call):
        calls.append(call)
        return await stream(call)

    endpoints["generator"].generate = kept
    body = {"model": "tiny", "messages": ASKED, "max_tokens": 4}

    async def go(**fields):
        async with serving(tiny_deployment, endpoints) as app:
            return await post(app, PATH, {**body, **fields})

    fields = {"presence_penalty": 0.5, "min_p": 0.1, "logit_bias": {"7": -100}, "min_tokens": 2}
    assert asyncio.run(go(**fields))[0] == 200
    assert calls[-1].shaping == Shaping(2, 1.0, 0.5, 0.0, 0.1, ((7, -100.0),))
    assert asyncio.run(go(store=True, metadata={"a": "b"}, logit_bias={}))[0] == 200
    assert calls[-1].shaping is None
    for wrong, param in (
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"min_tokens": 5}, "min_tokens"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"presence_penalty": 1, "tts": {"n": 2}}, "presence_penalty"),
    ):
        status, answer = asyncio.run(go(**wrong))
        assert (status, answer["error"]["param"]) == (400, param)
