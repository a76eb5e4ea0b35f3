"""A server that already runs: samples, their ends, and what goes wrong on the way."""

import asyncio
import math
from contextlib import aclosing
from dataclasses import replace

import pytest
from aiohttp import web
from tests.endpoints.openai.asking import CALL, PROMPT, generated, opened, streamed
from tests.endpoints.openai.stand_in import END, TOKENIZER, StandIn, drawn, log_prob

from tts.base.errors import (
    ConfigError,
    EndpointError,
    EndpointTimeout,
    EndpointUnavailable,
    RequestRefused,
    ServerError,
)
from tts.endpoints.openai.http_client import Http
from tts.endpoints.openai.probing import Capabilities
from tts.endpoints.openai.server import OpenAIServer
from tts.endpoints.shaping import Shaping
from tts.endpoints.streaming import stream_of

KINDS = ("vllm", "llama")


@pytest.mark.parametrize("kind", KINDS)
async def test_the_ids_asked_and_answered_are_those_of_the_engine(kind):
    ids, (body,) = await generated(StandIn(kind))
    assert body["prompt"] == PROMPT.tolist()
    assert ids == drawn(PROMPT.tolist(), 7, 12)
    assert bool(body.get("stream")) == (kind == "llama")


@pytest.mark.parametrize("kind", KINDS)
async def test_prefixes_are_kept_apart_by_a_salt_where_the_server_takes_one(kind):
    stand_in, salts = StandIn(kind), []
    async with opened(stand_in) as (server, generator):
        for _ in range(3):
            await generator.generate(CALL)
            await generator.generate(CALL)
            salts.append({body.get("cache_salt") for body in stand_in.asked[-2:]})
            assert server.reset_prefix_cache() is (kind == "vllm")
    assert [len(each) for each in salts] == [1, 1, 1]
    assert salts[0] == {None}
    assert len(set.union(*salts)) == (3 if kind == "vllm" else 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_says_what_it_can_do(kind):
    async with StandIn(kind) as url, OpenAIServer(url) as server:
        known = await server.probe()
    says = {
        "vllm": "vLLM 0.32.0 serving smollm2: context 2,048; seeds honoured, several samples a "
        "request; "
        "log-probabilities of tokens, prompts, labels; grammars (structured_outputs)",
        "llama": "llama.cpp b0-unknown serving smollm2: context 512; seeds "
        "honoured; log-probabilities of tokens, labels; grammars (grammar)",
    }
    assert known.describe() == says[kind]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "seeds NOT honoured; no probabilities; no grammars"),
        ({"generates": False, "pooling": True, "context": 4096}, "context 4,096; scores of a head"),
        (
            {"seeds": True, "labels": "ids", "grammar": "ebnf"},
            "seeds honoured one at a time, NOT with several in flight; "
            "log-probabilities of labels; grammars (ebnf)",
        ),
    ],
)
def test_what_a_server_cannot_do_is_said_too(fields, says):
    assert Capabilities("sglang", "m", **fields).describe() == f"SGLang serving m: {says}"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_end_of_sequence_is_no_part_of_an_output_and_a_stop_word_is(kind):
    output = [40, 41, END, 42]
    for fields, ids in (
        ({}, [40, 41]),
        ({"ignore_end": True}, output),
        ({"stop_words": ((40, 41),)}, [40, 41]),
        ({"stop_words": ((40,),)}, [40]),
    ):
        assert (await generated(StandIn(kind, output), replace(CALL, **fields)))[0] == ids


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_ends_with_the_token_that_completes_its_delimiter(kind):
    step = TOKENIZER.encode("one.\n\n")
    ids, (body,) = await generated(
        StandIn(kind, [*step, *TOKENIZER.encode("two")]), replace(CALL, stop_at_step=True)
    )
    assert (ids, body["stop"]) == (step, ["\n\n"])


@pytest.mark.parametrize("word", [(41,), (40, 41)])
async def test_what_llama_cpp_does_not_look_for_ends_its_request_all_the_same(word):
    """It takes no ids to stop at, and with log-probabilities no texts."""
    stand_in = StandIn("llama", [39, 40, 41, *[42] * 9])
    stand_in.stops_after = 4
    call = replace(CALL, stop_words=(word,), log_probs=True)
    ids, bodies = await generated(stand_in, call)
    assert (ids, len(bodies)) == ([39, 40, 41], 1)


async def test_an_output_is_no_longer_than_the_context():
    _, (body,) = await generated(StandIn(), replace(CALL, max_new_tokens=100_000))
    assert body["max_tokens"] == 2048 - len(PROMPT)


async def test_what_servers_would_choose_themselves_is_said_in_each_request():
    _, (vllm,) = await generated(StandIn("vllm"))
    _, (llama,) = await generated(StandIn("llama"))
    for body in vllm, llama:
        assert body["min_p"] == body["frequency_penalty"] == body["presence_penalty"] == 0
        assert body["top_k"] == 0
    assert (vllm["repetition_penalty"], llama["repeat_penalty"]) == (1, 1)
    assert llama["samplers"] == ["temperature", "top_k", "top_p"]


@pytest.mark.parametrize("kind", KINDS)
async def test_seeds_of_64_bits_become_seeds_that_the_server_takes(kind):
    limit = {"vllm": 2**63, "llama": 2**32 - 1}[kind]
    for seed in (0, 5, 2**32 - 1, 2**63, 2**64 - 1):
        _, (body,) = await generated(StandIn(kind), replace(CALL, seed=seed))
        assert 0 <= body["seed"] < limit
    _, (body,) = await generated(StandIn(kind), replace(CALL, temperature=0.0))
    assert (body["temperature"], body["seed"], body["top_k"], body["top_p"]) == (0, 0, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_streamed_tokens_are_those_of_the_whole_answer_with_their_log_probabilities(kind):
    news = await streamed(StandIn(kind, [40, 41, END]), replace(CALL, log_probs=True))
    assert [token for new in news for token in new.ids] == [40, 41]
    given = [each for new in news for each in new.log_probs]
    before = [*PROMPT.tolist(), 40] if kind == "vllm" else PROMPT.tolist()
    assert given == [log_prob(PROMPT.tolist(), 40), log_prob(before, 41)]
    assert [new.final for new in news] == [False] * (len(news) - 1) + [True]
    assert len(news) == {"vllm": 3, "llama": 1}[kind]


@pytest.mark.parametrize("streaming", [True, False])
async def test_the_likeliest_tokens_come_with_those_that_are_drawn(streaming):
    call = replace(CALL, log_probs=True, top_log_probs=2, streaming=streaming)
    news = await streamed(StandIn("vllm", [40, 41, END]), call)
    drawn_ones = [pair for new in news for pair in zip(new.ids, new.log_probs, strict=True)]
    assert [row for new in news for row in new.top] == [[each, (0, -20.0)] for each in drawn_ones]


@pytest.mark.parametrize("top", [0, 1])
async def test_a_prompt_is_read_with_the_likeliest_tokens_at_its_places(top):
    ids = PROMPT.tolist()
    async with opened(StandIn("vllm")) as (_, generator):
        new = await generator.read(replace(CALL, top_log_probs=top))
    assert (new.ids, new.log_probs[1:]) == (ids, [log_prob(ids[:at], ids[at]) for at in (1, 2)])
    assert math.isnan(new.log_probs[0])
    assert new.top == ([[], [(0, -0.001)], [(0, -0.001)]] if top else [])


async def test_a_server_that_names_no_ids_of_the_likeliest_tokens_is_not_asked_for_them():
    with pytest.raises(RequestRefused, match="top_logprobs is not supported by this server"):
        await generated(StandIn("llama"), replace(CALL, log_probs=True, top_log_probs=2))


@pytest.mark.parametrize("left_out", [set(), {3}, {11}])
async def test_llama_cpp_is_asked_in_one_piece_where_its_stream_leaves_a_token_out(left_out):
    stand_in = StandIn("llama")
    stand_in.within_characters = left_out
    output, asked = await generated(stand_in)
    assert output == drawn(PROMPT.tolist(), 7, 12)
    first, *whole = asked
    assert first["stream"]
    closing = ["close", *(None for _ in whole)]  # as the server does: no other request may use it
    assert [headers.get("Connection") for headers in stand_in.headers[-len(asked) :]] == closing
    unstreamed = {name: value for name, value in first.items() if name != "stream"}
    assert whole == ([unstreamed] if left_out else [])


async def begun(stand_in, generator):
    """A request that has come to a server, which holds its answer back."""
    stand_in.hold.clear()
    task = asyncio.create_task(generator.generate(CALL))
    while not stand_in.asked:
        await asyncio.sleep(0.01)
    return task


async def test_a_cancelled_request_ends_on_the_server():
    stand_in = StandIn()
    async with opened(stand_in) as (_, generator):
        task = await begun(stand_in, generator)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not stand_in.given_up:
            await asyncio.sleep(0.01)
        stand_in.hold.set()
        assert await generator.generate(CALL) == drawn(PROMPT.tolist(), 7, 12)


async def test_a_server_that_is_started_again_is_asked_again():
    stand_in = StandIn()
    async with opened(stand_in) as (_, generator):
        task = await begun(stand_in, generator)
        await stand_in.stop()  # in the middle of a request
        stand_in.hold.set()
        await asyncio.sleep(0.3)  # longer than until it is sent again
        await stand_in.start()
        assert await task == drawn(PROMPT.tolist(), 7, 12)


async def test_a_server_that_is_gone_for_good_is_named_with_its_address():
    stand_in = StandIn()
    async with opened(stand_in) as (server, generator):
        await stand_in.stop()
        server.limit_patience(0.5)
        try:
            with pytest.raises(
                EndpointUnavailable, match=f"answers at {server.http.address}: Conn"
            ):
                await generator.generate(CALL)
        finally:
            await stand_in.start()


def answer(status, words="busy", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: web.json_response({"error": {"message": words}}, status=status, headers=named)


@pytest.mark.parametrize(
    "failure",
    [answer(429, Retry_After="0.3"), answer(503, "Loading model"), answer(500, "EngineDeadError")],
)
async def test_a_server_that_is_busy_is_asked_again(failure):
    stand_in = StandIn()
    async with opened(stand_in) as (_, generator):
        stand_in.failures = [failure, failure]
        assert await generator.generate(CALL) == drawn(PROMPT.tolist(), 7, 12)
        assert len(stand_in.asked) == 3


async def failed(failure, *, streaming=True, **options):
    """The error of a sample whose answer is this one."""
    stand_in = StandIn()
    async with opened(stand_in, **options) as (server, generator):
        stand_in.failures = [failure] * 50
        server.limit_patience(0.5)
        with pytest.raises(EndpointError) as caught:
            [new async for new in stream_of(generator, replace(CALL, streaming=streaming))]
        return caught.value


async def test_a_key_is_sent_and_never_shown():
    key = "sk-secret"
    error = await failed(answer(401, f"the key {key} is wrong"), api_key=key)
    assert key not in str(error)
    assert "the key *** is wrong" in error.message
    stand_in = StandIn()
    async with opened(stand_in, api_key=key) as (server, generator):
        await generator.generate(CALL)
        assert key not in server.http.address
    assert stand_in.headers[-1]["Authorization"] == f"Bearer {key}"


def choice(**fields):
    """An answer with one choice of these fields."""
    body = {"text": "", "token_ids": [40], "finish_reason": "length", "logprobs": None}
    return lambda: web.json_response({"choices": [body | fields]})


def text(body):
    return lambda: web.Response(text=body)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (choice(token_ids=[40, 100_000]), "token 100000; the tokenizer has ids up to 767"),
        (choice(token_ids=[-1]), "holds -1 where a token id should be"),
        (choice(token_ids=[True]), "holds True where a token id should be"),
        (choice(token_ids=[1.5]), "holds 1.5 where a token id should be"),
        (choice(token_ids=["x" * 80]), rf"holds '{'x' * 59}\.\.\. where a token id should be"),
        (choice(token_ids="40"), "holds '40' where a list of token ids should be"),
        (choice(token_ids=None), "holds no token ids"),
        (choice(text=5), "holds 5 where a text should be"),
        (choice(finish_reason="abort"), "gave a request up"),
        (choice(finish_reason=7), "holds 7 where a reason should be"),
        (text("[]"), r"holds \[\] where an object should be"),
        (text('{"choices": []}'), "holds '' where the reason why an output ends should be"),
        (choice(finish_reason=None), "holds '' where the reason"),
        (text("<html>"), "no JSON"),
        (text('{"choices": [NaN]}'), "no JSON"),
        (text("[" * 100_000), "no JSON"),
    ],
)
async def test_an_answer_that_is_none_is_a_sentence(failure, words):
    with pytest.raises(EndpointError, match=words):
        raise await failed(failure, streaming=False)


REFUSED = 'data: {"error": {"message": "too long", "code": 400}}\n\n'
ELSEWHERE = {"Location": "http://127.0.0.1:9/"}


@pytest.mark.parametrize(
    ("failure", "streaming", "kind", "words"),
    [
        (answer(400, "it is " + "too large " * 100), True, RequestRefused, "400: it is too large"),
        (text("x" * 100_000), False, EndpointError, "more than 10,000 bytes"),
        (text('data: {"choices": []}\n' * 1000), True, EndpointError, "more than 10,000 bytes"),
        (text("x" * 6_000), True, EndpointError, "an event of more than"),
        (text("data: [DONE]\n"), True, EndpointUnavailable, ""),
        (text(REFUSED), True, RequestRefused, "too long"),
        (lambda: web.Response(status=307, headers=ELSEWHERE), True, RequestRefused, "status 307"),
    ],
)
async def test_an_answer_that_refuses_or_does_not_end_is_read_no_further_than_that(
    monkeypatch, failure, streaming, kind, words
):
    monkeypatch.setattr("tts.endpoints.openai.http_client.MOST_BYTES", 10_000)
    monkeypatch.setattr("tts.endpoints.openai.http_client._MOST_EVENT_BYTES", 5_000)
    error = await failed(failure, streaming=streaming)
    assert type(error) is kind
    assert words in error.message
    assert len(error.message) < 450


class TextOnly(StandIn):
    async def _sample(self, request):
        words = "Input should be a valid string"
        return web.json_response({"error": {"message": words}}, status=500)


def serving(models):
    """Makes a server that says this of its models."""

    def make():
        stand_in = StandIn()
        stand_in.said = stand_in.said | {"/v1/models": {"answer": models, "status": 200}}
        return stand_in

    return make


@pytest.mark.parametrize(
    ("stand_in", "options", "words"),
    [
        (serving({"data": [{"id": "a"}, {"id": "b"}]}), {}, "serves 2 models: a, b"),
        (serving({"data": [{"id": 7}, "b"]}), {}, "serves 0 models: none"),
        (serving([]), {}, "no list of models"),
        (TextOnly, {"patience_s": 0}, r"does not return token ids.*valid string"),
        (StandIn, {"model": "other"}, "does not serve 'other'; it serves: smollm2"),
    ],
)
async def test_a_server_that_cannot_be_used_says_why(stand_in, options, words):
    async with stand_in() as url, OpenAIServer(url, **options) as server:
        with pytest.raises(ServerError, match=words):
            await server.probe()


async def test_nothing_at_an_address_is_said_at_once_where_there_is_no_patience():
    async with OpenAIServer("http://127.0.0.1:9", patience_s=0) as server:
        with pytest.raises(EndpointUnavailable, match=r"answers at http://127\.0\.0\.1:9: Conn"):
            await server.probe()


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await generated(StandIn()))[0]


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://host", "http://", "http://h:99999999"]
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError, match="must be like http"):
        OpenAIServer(url)


@pytest.mark.parametrize("url", ["http://me:secret@host:8000", "http://host:8000/v1?key=secret"])
def test_an_address_with_a_secret_is_refused_without_showing_it(url):
    with pytest.raises(ConfigError, match="the server at host holds") as caught:
        OpenAIServer(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://h:80/a", "http://h:80/a/", " http://h:80/a/v1/ "])
def test_a_url_may_end_with_v1(url):
    assert OpenAIServer(url).http.address == "http://h/a"


async def test_llama_takes_what_changes_the_distribution_over_the_whole_context():
    shaping = Shaping(repetition_penalty=1.2, presence_penalty=0.5, min_p=0.1)
    call = replace(CALL, shaping=replace(shaping, logit_bias=((5, 1.0),)))
    ids, (body,) = await generated(StandIn("llama"), call)
    assert ids
    assert body["repeat_last_n"] == len(PROMPT) + call.max_new_tokens
    assert (body["repeat_penalty"], body["presence_penalty"], body["min_p"]) == (1.2, 0.5, 0.1)
    assert body["logit_bias"] == [[5, 1.0]]


@pytest.mark.parametrize(
    ("repeats", "words"),
    [
        (True, "seeds honoured;"),
        (False, "seeds honoured one at a time, NOT with several in flight;"),
    ],
)
async def test_seeds_that_hold_one_at_a_time_are_told_from_those_that_hold_always(repeats, words):
    stand_in = StandIn("llama")
    stand_in.repeats = repeats
    async with stand_in as url, OpenAIServer(url) as server:
        known = await server.probe()
    assert (known.seeds, known.seeds_beside_others) == (True, repeats)
    assert words in known.describe()


async def test_an_answer_that_does_not_come_in_time_is_given_up():
    stand_in = StandIn()
    stand_in.hold.clear()
    async with stand_in as url:
        http = Http(url, None, 0, answer_timeout_s=0.1)
        try:
            with pytest.raises(EndpointTimeout, match=r"has answered nothing for 0\.1 s"):
                await http.post("/v1/completions", {"prompt": [1]})
            while not stand_in.given_up:
                await asyncio.sleep(0.01)
        finally:
            await http.aclose()
            stand_in.hold.set()


async def test_a_stream_that_is_closed_ends_on_the_server():
    class Slow(StandIn):
        async def _stream(self, ids, tokens, why, body):
            whole = await super()._stream(ids, tokens, why, body)
            response = web.StreamResponse()
            await response.prepare(self.request)
            await response.write(whole.text.partition("\n\n")[2].partition("\n\n")[0].encode())
            await response.write(b"\n\n")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.given_up += 1
                raise

        async def _sample(self, request):
            self.request = request
            return await super()._sample(request)

    stand_in = Slow()
    async with opened(stand_in) as (_, generator):
        stream = stream_of(generator, CALL)
        first = await anext(stream)
        await stream.aclose()
        while not stand_in.given_up:
            await asyncio.sleep(0.01)
        assert first.ids == drawn(PROMPT.tolist(), 7, 12)[:1]


async def test_a_stream_that_ends_late_keeps_its_connection():
    """Also where its reader leaves with the last token: usage and [DONE] come behind that."""
    connections = []

    class EndsLate(StandIn):
        async def _sample(self, request):
            answer = await super()._sample(request)
            if (await request.json()).get("stream"):
                connections.append(request.transport)
                stream = web.StreamResponse()
                await stream.prepare(request)
                tokens, done, _ = answer.text.partition("data: [DONE]")
                await stream.write(tokens.encode())
                await asyncio.sleep(0.02)
                await stream.write(done.encode() + b"\n\n")
                return stream
            return answer

    async with opened(EndsLate()) as (_, generator):
        async with aclosing(stream_of(generator, CALL)) as stream:
            async for new in stream:
                if new.final:
                    break
        await asyncio.sleep(0.05)
        assert not connections[-1].is_closing()
