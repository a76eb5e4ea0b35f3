"""Samples as text: seeds, any generator, and what happens when a server goes away."""

import asyncio
import json

import pytest
from tests.endpoints.scripted import ScriptedVerifier
from tests.gateway.in_process import post, serving

from tts.build.errors import EndpointUnavailable
from tts.endpoints.base import NewTokens
from tts.engines.wire import EBNF, Guide
from tts.gateway.answer.generation import TextGenerator
from tts.gateway.observability import ServedRequest
from tts.gateway.openai.requests import Request
from tts.gateway.safety import FilterChain
from tts.prompting import Models
from tts.session.replicas import EnginePair, Replicas

LETTERS = list(range(40, 60))


class Whole:
    """A program's own generator: it gives the letters that follow the prompt of one id."""

    def __init__(self):
        self.calls = []

    async def generate(self, call):
        self.calls.append(call)
        already = len(call.input_ids) - 1
        return LETTERS[already : already + call.max_new_tokens]


class Streaming(Whole):
    """The same letters one by one, until it goes away."""

    def __init__(self, lives_for=None):
        super().__init__()
        self.lives_for, self.closed = lives_for, 0

    async def stream(self, call):
        try:
            for token in await self.generate(call):
                if self.lives_for == 0:
                    raise EndpointUnavailable("gone")
                if self.lives_for is not None:
                    self.lives_for -= 1
                yield NewTokens([token])
        finally:
            self.closed += 1


def run(tiny_deployment, servers, limit=6, guide=None, **fields):
    """The text of a sample, its choice, and the record."""
    models = Models.load(tiny_deployment)

    async def go():
        async with Replicas(None) as replicas:
            for name, server in servers.items():
                replicas.use(EnginePair(name, server, None))
            generator = TextGenerator(models, replicas, FilterChain())
            request = Request(model="tiny", stream=True, **fields)
            (call,) = generator.calls([[7]], request, [limit], guide=guide)
            choice = generator.sample(0, call, request)
            record = ServedRequest(id="", endpoint="", time=0.0, t0=0.0)
            text = ""
            async for delta in generator.deltas(call, choice, record, "key"):
                text += delta.text
            return text, choice, record

    return asyncio.run(asyncio.wait_for(go(), 20)), models


@pytest.mark.parametrize("lives_for", [0, 3])
def test_a_sample_with_a_guide_goes_on_elsewhere_only_before_its_first_token(
    tiny_deployment, lives_for
):
    """The guide says what the whole output is, not what is left of it."""
    servers = {"first": Streaming(lives_for), "second": Streaming(lives_for)}
    if lives_for:
        with pytest.raises(EndpointUnavailable, match="middle of a guided sample"):
            run(tiny_deployment, servers, guide=Guide(EBNF, 'root ::= "a"'))
        return
    servers["third"] = Streaming()
    (text, _, _), models = run(tiny_deployment, servers, guide=Guide(EBNF, 'root ::= "a"'))
    assert text == models.generator.decode(LETTERS[:6])


@pytest.mark.parametrize("lives_for", range(7))
def test_a_sample_goes_on_elsewhere_after_the_tokens_that_it_has(tiny_deployment, lives_for):
    dying, other = Streaming(lives_for), Streaming()
    (text, choice, record), models = run(tiny_deployment, {"a": dying, "b": other})
    assert text == models.generator.decode(LETTERS[:6])
    assert (choice.finish, choice.tokens) == ("length", 6)
    if lives_for < 6:
        assert record.replica == "b"
        assert other.calls[0].max_new_tokens == 6 - lives_for


def test_a_sample_whose_last_word_is_lost_is_whole(tiny_deployment):
    class LosesTheEnd(Streaming):
        async def stream(self, call):
            async for new in super().stream(call):
                yield new
            raise EndpointUnavailable("gone")

    other = Streaming()
    (text, choice, _), models = run(tiny_deployment, {"a": LosesTheEnd(), "b": other})
    assert text == models.generator.decode(LETTERS[:6])
    assert (choice.finish, other.calls) == ("length", [])


def test_one_server_is_asked_again_and_then_its_failure_is_told(tiny_deployment, monkeypatch):
    monkeypatch.setattr("tts.session.replicas.RETRY_WAIT_S", 0)
    dead = Streaming(0)
    with pytest.raises(EndpointUnavailable, match="gone"):
        run(tiny_deployment, {"a": dead})
    assert len(dead.calls) == 4


def test_a_sample_that_has_its_stop_string_is_ended_on_the_engine(tiny_deployment):
    server = Streaming()
    stop = Models.load(tiny_deployment).generator.decode(LETTERS[2:3])
    (_, choice, _), _ = run(tiny_deployment, {"a": server}, limit=15, stop=stop)
    assert (choice.finish, choice.tokens) == ("stop", 3)
    assert server.closed == 1


@pytest.mark.parametrize("kind", [Whole, Streaming])
@pytest.mark.parametrize("stream", [False, True])
def test_the_gateway_serves_a_generator_of_the_programs_own(tiny_deployment, kind, stream):
    models = Models.load(tiny_deployment)
    endpoints = {"generator": kind(), "verifier": ScriptedVerifier()}
    body = {"model": tiny_deployment.name, "prompt": [7], "max_tokens": 6, "stream": stream}

    async def go():
        async with serving(tiny_deployment, endpoints) as app:
            return await post(app, "/v1/completions", body)

    status, said = asyncio.run(go())
    assert status == 200
    pieces = [said]
    if stream:
        lines = [line.removeprefix("data: ") for line in said.splitlines() if line]
        assert lines.pop() == "[DONE]"
        pieces = [json.loads(line) for line in lines]
    choices = [choice for piece in pieces for choice in piece["choices"]]
    assert "".join(choice["text"] for choice in choices) == models.generator.decode(LETTERS[:6])
    assert choices[-1]["finish_reason"] == "length"
    assert len([choice for choice in choices if choice["text"]]) == (
        6 if stream and kind is Streaming else 1
    )


def test_log_probabilities_that_a_generator_does_not_give_are_refused(tiny_deployment):
    endpoints = {"generator": Whole(), "verifier": ScriptedVerifier()}
    body = {"model": tiny_deployment.name, "prompt": [7], "max_tokens": 6, "logprobs": 0}

    async def go():
        async with serving(tiny_deployment, endpoints) as app:
            return await post(app, "/v1/completions", body)

    status, said = asyncio.run(go())
    assert (status, said["error"]["code"]) == (400, "unsupported_parameter")


def test_a_choice_ends_with_its_last_delta_however_late_that_is_read(tiny_deployment):
    models = Models.load(tiny_deployment)

    async def go():
        async with Replicas(None) as replicas:
            replicas.use(EnginePair("a", Streaming(), None))
            generator = TextGenerator(models, replicas, FilterChain())
            request = Request(model="tiny", stream=True, n=2)
            calls = generator.calls([[7]], request, [6])
            choices = [generator.sample(i, call, request) for i, call in enumerate(calls)]
            record = ServedRequest(id="", endpoint="", time=0.0, t0=0.0)
            read = []
            async for delta in generator.merged(calls, choices, record, "key"):
                read.append(delta)
                for _ in range(100):
                    await asyncio.sleep(0)
                waiting = sum(choice.tokens for choice in choices) - len(read)
                assert waiting <= 4  # for each choice one that waits, and one more
            return read

    read = asyncio.run(asyncio.wait_for(go(), 20))
    for index in (0, 1):
        mine = [delta for delta in read if delta.sample.index == index]
        assert [delta.finish for delta in mine] == [*[None] * 6, "length"]
        assert "".join(delta.text for delta in mine) == models.generator.decode(LETTERS[:6])


def test_every_choice_has_a_seed_of_its_own_that_repeats(tiny_deployment):
    generator = TextGenerator(Models.load(tiny_deployment), None, FilterChain())

    def seeds(**fields):
        request = Request(model="tiny", n=3, **fields)
        return [c.seed for c in generator.calls([[1], [2]], request, [5, 5])]

    assert seeds(seed=1) == seeds(seed=1)
    assert len({*seeds(seed=1), *seeds(seed=2)}) == 12
    assert seeds() != seeds()


def test_a_stop_at_the_step_delimiter_is_left_to_the_engine(tiny_deployment):
    models = Models.load(tiny_deployment)
    generator = TextGenerator(models, None, FilterChain())
    request = Request(model="tiny", stop="\n\n", stop_token_ids=[9])
    (call,) = generator.calls([[1]], request, [5])
    assert call.stop_at_step
    assert call.stop_words == ((9,),)
    assert call.streaming
