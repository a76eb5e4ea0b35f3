"""A server that already runs: samples, their ends, and what goes wrong on the way."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
from aiohttp import web
from tests.endpoints.openai.stand_in import END, TOKENIZER, StandIn, drawn, log_prob

from tts.build.errors import (
    ConfigError,
    EndpointError,
    EndpointTimeout,
    EndpointUnavailable,
    RequestRefused,
    ServerError,
)
from tts.endpoints.base import GenerateCall, Shaping, stream_of
from tts.endpoints.openai.generator import OpenAIGenerator
from tts.endpoints.openai.http_client import Http
from tts.endpoints.openai.server import OpenAIServer

PROMPT = np.asarray([30, 31, 32], dtype=np.int32)
CALL = GenerateCall(PROMPT, 12, 7, 1.0, 1.0, stop_at_step=False)
KINDS = ("vllm", "llama")


@asynccontextmanager
async def opened(stand_in, **options):
    """A server that has been asked what it is, and its generator."""
    async with stand_in as url, OpenAIServer(url, patience_s=5, **options) as server:
        await server.probe()
        stand_in.asked.clear()
        yield server, generator_of(server)


def generator_of(server, delimiter="\n\n"):
    return OpenAIGenerator(
        server, tokenizer=TOKENIZER, end_id=END, step_stop_words=(), step_delimiter=delimiter
    )


def generated(stand_in, call=CALL, **options):
    """What a sample is, and the bodies of the requests for it."""

    async def go():
        async with opened(stand_in, **options) as (_, generator):
            return await generator.generate(call), stand_in.asked

    return asyncio.run(go())


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_asked_and_answered_are_those_of_the_engine(kind):
    ids, (body,) = generated(StandIn(kind))
    assert body["prompt"] == PROMPT.tolist()
    assert ids == drawn(PROMPT.tolist(), 7, 12)
    assert bool(body.get("stream")) == (kind == "llama")


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_says_what_it_can_do(kind):
    async def go():
        async with StandIn(kind) as url, OpenAIServer(url) as server:
            return await server.probe()

    known = asyncio.run(go())
    says = {
        "vllm": "vLLM 0.32.0 serving smollm2: context 2,048; seeds honoured; "
        "log-probabilities of tokens, prompts, labels; grammars (structured_outputs)",
        "llama": "llama.cpp b0-unknown serving smollm2: context 512; seeds "
        "honoured; log-probabilities of tokens, labels; grammars (grammar)",
    }
    assert known.describe() == says[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_an_end_of_sequence_is_no_part_of_an_output_and_a_stop_word_is(kind):
    output = [40, 41, END, 42]
    assert generated(StandIn(kind, output))[0] == [40, 41]
    assert generated(StandIn(kind, output), replace(CALL, ignore_end=True))[0] == output
    assert generated(StandIn(kind, output), replace(CALL, stop_words=((40, 41),)))[0] == [40, 41]
    assert generated(StandIn(kind, output), replace(CALL, stop_words=((40,),)))[0] == [40]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_ends_with_the_token_that_completes_its_delimiter(kind):
    step = TOKENIZER.encode("one.\n\n")
    ids, (body,) = generated(
        StandIn(kind, [*step, *TOKENIZER.encode("two")]), replace(CALL, stop_at_step=True)
    )
    assert (ids, body["stop"]) == (step, ["\n\n"])


@pytest.mark.parametrize("word", [(41,), (40, 41)])
def test_what_llama_cpp_does_not_look_for_ends_its_request_all_the_same(word):
    """It takes no ids to stop at, and with log-probabilities no texts."""
    stand_in = StandIn("llama", [39, 40, 41, *[42] * 9])
    stand_in.stops_after = 4
    call = replace(CALL, stop_words=(word,), log_probs=True)
    ids, bodies = generated(stand_in, call)
    assert (ids, len(bodies)) == ([39, 40, 41], 1)


def test_an_output_is_no_longer_than_the_context():
    _, (body,) = generated(StandIn(), replace(CALL, max_new_tokens=100_000))
    assert body["max_tokens"] == 2048 - len(PROMPT)


def test_what_servers_would_choose_themselves_is_said_in_each_request():
    _, (vllm,) = generated(StandIn("vllm"))
    _, (llama,) = generated(StandIn("llama"))
    for body in vllm, llama:
        assert body["min_p"] == body["frequency_penalty"] == body["presence_penalty"] == 0
        assert body["top_k"] == 0
    assert (vllm["repetition_penalty"], llama["repeat_penalty"]) == (1, 1)
    assert llama["samplers"] == ["temperature", "top_k", "top_p"]


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_of_64_bits_become_seeds_that_the_server_takes(kind):
    limit = {"vllm": 2**63, "llama": 2**32 - 1}[kind]
    for seed in (0, 5, 2**32 - 1, 2**63, 2**64 - 1):
        _, (body,) = generated(StandIn(kind), replace(CALL, seed=seed))
        assert 0 <= body["seed"] < limit
    _, (body,) = generated(StandIn(kind), replace(CALL, temperature=0.0))
    assert (body["temperature"], body["seed"], body["top_k"], body["top_p"]) == (0, 0, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_tokens_are_those_of_the_whole_answer_with_their_log_probabilities(kind):
    async def go():
        async with opened(StandIn(kind, [40, 41, END])) as (_, generator):
            call = replace(CALL, log_probs=True)
            return [new async for new in stream_of(generator, call)]

    news = asyncio.run(go())
    assert [token for new in news for token in new.ids] == [40, 41]
    given = [each for new in news for each in new.log_probs]
    before = [*PROMPT.tolist(), 40] if kind == "vllm" else PROMPT.tolist()
    assert given == [log_prob(PROMPT.tolist(), 40), log_prob(before, 41)]
    assert [new.final for new in news] == [False] * (len(news) - 1) + [True]
    assert len(news) == {"vllm": 3, "llama": 1}[kind]


@pytest.mark.parametrize("streaming", [True, False])
def test_the_likeliest_tokens_come_with_those_that_are_drawn(streaming):
    async def go():
        async with opened(StandIn("vllm", [40, 41, END])) as (_, generator):
            call = replace(CALL, log_probs=True, top_log_probs=2, streaming=streaming)
            return [new async for new in stream_of(generator, call)]

    news = asyncio.run(go())
    drawn_ones = [pair for new in news for pair in zip(new.ids, new.log_probs, strict=True)]
    assert [row for new in news for row in new.top] == [[each, (0, -20.0)] for each in drawn_ones]


def test_a_server_that_names_no_ids_of_the_likeliest_tokens_is_not_asked_for_them():
    with pytest.raises(RequestRefused, match="top_logprobs is not supported by this server"):
        generated(StandIn("llama"), replace(CALL, log_probs=True, top_log_probs=2))


@pytest.mark.parametrize("left_out", [set(), {3}, {11}])
def test_llama_cpp_is_asked_in_one_piece_where_its_stream_leaves_a_token_out(left_out):
    stand_in = StandIn("llama")
    stand_in.within_characters = left_out
    output, asked = generated(stand_in)
    assert output == drawn(PROMPT.tolist(), 7, 12)
    streamed, *whole = asked
    assert streamed["stream"]
    closing = ["close", *(None for _ in whole)]  # as the server does: no other request may use it
    assert [headers.get("Connection") for headers in stand_in.headers[-len(asked) :]] == closing
    unstreamed = {name: value for name, value in streamed.items() if name != "stream"}
    assert whole == ([unstreamed] if left_out else [])


async def begun(stand_in, generator):
    """A request that has come to a server, which holds its answer back."""
    stand_in.hold.clear()
    task = asyncio.create_task(generator.generate(CALL))
    while not stand_in.asked:
        await asyncio.sleep(0.01)
    return task


def test_a_cancelled_request_ends_on_the_server():
    async def go():
        stand_in = StandIn()
        async with opened(stand_in) as (_, generator):
            task = await begun(stand_in, generator)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while not stand_in.given_up:
                await asyncio.sleep(0.01)
            stand_in.hold.set()
            return await generator.generate(CALL)

    assert asyncio.run(go()) == drawn(PROMPT.tolist(), 7, 12)


def test_a_server_that_is_started_again_is_asked_again():
    async def go():
        stand_in = StandIn()
        async with opened(stand_in) as (_, generator):
            task = await begun(stand_in, generator)
            await stand_in.stop()  # in the middle of a request
            stand_in.hold.set()
            await asyncio.sleep(0.3)  # longer than until it is sent again
            await stand_in.start()
            return await task

    assert asyncio.run(go()) == drawn(PROMPT.tolist(), 7, 12)


def test_a_server_that_is_gone_for_good_is_named_with_its_address():
    async def go():
        stand_in = StandIn()
        async with opened(stand_in) as (server, generator):
            await stand_in.stop()
            server.patience_s = 0.5
            try:
                with pytest.raises(
                    EndpointUnavailable, match=f"answers at {server.http.address}: Conn"
                ):
                    await generator.generate(CALL)
            finally:
                await stand_in.start()

    asyncio.run(go())


def answer(status, words="busy", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: web.json_response({"error": {"message": words}}, status=status, headers=named)


@pytest.mark.parametrize(
    "failure",
    [answer(429, Retry_After="0.3"), answer(503, "Loading model"), answer(500, "EngineDeadError")],
)
def test_a_server_that_is_busy_is_asked_again(failure):
    async def go():
        stand_in = StandIn()
        async with opened(stand_in) as (_, generator):
            stand_in.failures = [failure, failure]
            return await generator.generate(CALL), len(stand_in.asked)

    assert asyncio.run(go()) == (drawn(PROMPT.tolist(), 7, 12), 3)


def failed(failure, call=CALL, **options):
    """The error of a sample whose answer is this one."""

    async def go():
        stand_in = StandIn()
        async with opened(stand_in, **options) as (server, generator):
            stand_in.failures = [failure] * 50
            server.patience_s = 0.5
            with pytest.raises(EndpointError) as caught:
                [new async for new in stream_of(generator, call)]
            return caught.value

    return asyncio.run(go())


def test_what_is_refused_is_refused_in_the_servers_words():
    error = failed(answer(400, "max_tokens is " + "too large " * 100))
    assert isinstance(error, RequestRefused)
    assert "status 400: max_tokens is too large" in error.message
    assert len(error.message) < 450


def test_a_wait_longer_than_patience_is_not_begun():
    async def go():
        stand_in = StandIn()
        async with opened(stand_in) as (_, generator):
            stand_in.failures = [answer(429, Retry_After="3600")] * 9
            with pytest.raises(EndpointUnavailable, match="429"):
                await generator.generate(CALL)
            return len(stand_in.asked)

    assert asyncio.run(go()) == 1


def test_a_key_is_sent_and_never_shown():
    key = "sk-secret"
    error = failed(answer(401, f"the key {key} is wrong"), api_key=key)
    assert key not in str(error)
    assert "the key *** is wrong" in error.message

    async def go():
        stand_in = StandIn()
        async with opened(stand_in, api_key=key) as (server, generator):
            await generator.generate(CALL)
            return server.http.address, stand_in.headers[-1]["Authorization"]

    address, sent = asyncio.run(go())
    assert (key in address, sent) == (False, f"Bearer {key}")


def choice(**fields):
    """An answer with one choice of these fields."""
    body = {"text": "", "token_ids": [40], "finish_reason": "length", "logprobs": None}
    return lambda: web.json_response({"choices": [body | fields]})


def text(body):
    return lambda: web.Response(text=body)


WHOLE = replace(CALL, streaming=False)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (choice(token_ids=[40, 100_000]), "token 100000; the tokenizer has ids up to 767"),
        (choice(token_ids=[-1]), "holds -1 where a token id should be"),
        (choice(token_ids=[True]), "holds True where a token id should be"),
        (choice(token_ids=[1.5]), "holds 1.5 where a token id should be"),
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
def test_an_answer_that_is_none_is_a_sentence(failure, words):
    with pytest.raises(EndpointError, match=words):
        raise failed(failure, WHOLE)


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr("tts.endpoints.openai.http_client.MOST_BYTES", 10_000)
    assert "more than 10,000 bytes" in failed(text("x" * 100_000), WHOLE).message
    stream = 'data: {"choices": []}\n' * 1000
    assert "more than 10,000 bytes" in failed(text(stream)).message


def test_an_event_without_end_is_not_read_to_its_end():
    assert "an event of more than" in failed(text("x" * 6_000_000)).message


def test_a_stream_that_breaks_off_or_holds_an_error_is_no_answer():
    assert isinstance(failed(text("data: [DONE]\n")), EndpointUnavailable)
    inside = 'data: {"error": {"message": "too long", "code": 400}}\n\n'
    error = failed(text(inside))
    assert isinstance(error, RequestRefused)
    assert "too long" in error.message


def test_a_server_of_text_alone_is_refused_in_its_words():
    class TextOnly(StandIn):
        async def _sample(self, request):
            words = "Input should be a valid string"
            return web.json_response({"error": {"message": words}}, status=500)

    async def go():
        async with TextOnly() as url, OpenAIServer(url, patience_s=0) as server:
            await server.probe()

    with pytest.raises(ServerError, match=r"gives no completions of token ids.*valid string"):
        asyncio.run(go())


def test_a_model_that_is_not_served_is_named_with_those_that_are():
    async def go():
        async with StandIn() as url, OpenAIServer(url, model="other") as server:
            await server.probe()

    with pytest.raises(ServerError, match="does not serve 'other'; it serves: smollm2"):
        asyncio.run(go())


def test_nothing_at_an_address_is_said_at_once_where_there_is_no_patience():
    async def go():
        async with OpenAIServer("http://127.0.0.1:9", patience_s=0) as server:
            await server.probe()

    with pytest.raises(
        EndpointUnavailable, match=r"Nothing answers at http://127\.0\.0\.1:9: Connection"
    ):
        asyncio.run(go())


def test_a_proxy_of_the_environment_is_not_used(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert generated(StandIn())[0]


def test_a_redirection_is_not_followed():
    error = failed(lambda: web.Response(status=307, headers={"Location": "http://127.0.0.1:9/"}))
    assert "status 307" in error.message


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


def test_llama_takes_what_changes_the_distribution_over_the_whole_context():
    shaping = Shaping(repetition_penalty=1.2, presence_penalty=0.5, min_p=0.1)
    call = replace(CALL, shaping=replace(shaping, logit_bias=((5, 1.0),)))
    ids, (body,) = generated(StandIn("llama"), call)
    assert ids
    assert body["repeat_last_n"] == len(PROMPT) + call.max_new_tokens
    assert (body["repeat_penalty"], body["presence_penalty"], body["min_p"]) == (1.2, 0.5, 0.1)
    assert body["logit_bias"] == [[5, 1.0]]


def test_seeds_that_hold_one_at_a_time_are_told_from_those_that_hold_always():
    async def known(repeats):
        stand_in = StandIn("llama")
        stand_in.repeats = repeats
        async with stand_in as url, OpenAIServer(url) as server:
            return await server.probe()

    always, alone = asyncio.run(known(True)), asyncio.run(known(False))
    assert always.seeds
    assert always.seeds_beside_others
    assert "seeds honoured;" in always.describe()
    assert alone.seeds
    assert not alone.seeds_beside_others
    assert "seeds honoured one at a time, NOT with several in flight;" in alone.describe()


def test_an_answer_that_does_not_come_in_time_is_given_up():
    async def go():
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

    asyncio.run(go())


def test_a_stream_that_is_closed_ends_on_the_server():
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

    async def go():
        stand_in = Slow()
        async with opened(stand_in) as (_, generator):
            stream = stream_of(generator, CALL)
            first = await anext(stream)
            await stream.aclose()
            while not stand_in.given_up:
                await asyncio.sleep(0.01)
            return first.ids

    assert asyncio.run(go()) == drawn(PROMPT.tolist(), 7, 12)[:1]
