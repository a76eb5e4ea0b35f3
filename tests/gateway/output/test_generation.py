"""Samples as text: seeds, any generator, and what happens when a server goes away."""

import asyncio

import pytest
from tests.endpoints.scripted import ScriptedVerifier
from tests.gateway.in_process import TEXT, answers, chunks_of

from tts.base.errors import EndpointUnavailable
from tts.endpoints.streaming import NewTokens
from tts.engines.wire import EBNF, Guide
from tts.fleet.replicas import EnginePair, Replicas
from tts.gateway.observability.record import ServedRequest
from tts.gateway.openai.requests import Request
from tts.gateway.output.generation import Sampling, TextGenerator
from tts.gateway.safety.filters import FilterChain
from tts.prompting import Models

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


def sampled(deployment, servers, limit=6, guide=None, read=None, **fields):
    """The deltas of all samples, their choices, and the record; `read`: what is done at each."""

    async def go():
        async with Replicas(None) as replicas:
            for name, server in servers.items():
                replicas.use(EnginePair(name, server, None))
            generator = TextGenerator(Models.load(deployment), replicas, FilterChain())
            request = Request(model="tiny", stream=True, **fields)
            sampling = Sampling([[7]], "key", guide=guide)
            calls = generator.calls(request, sampling, [limit])
            choices = [generator.sample(i, call, request) for i, call in enumerate(calls)]
            record = ServedRequest(id="", endpoint="", time=0.0, t0=0.0)
            deltas = []
            async for delta in generator.merged(calls, choices, record, sampling):
                deltas.append(delta)
                if read:
                    await read(choices, deltas)
            return deltas, choices, record

    return asyncio.run(asyncio.wait_for(go(), 20))


def text_of(deltas):
    return "".join(delta.text for delta in deltas)


@pytest.fixture
def text(tokenizer):
    return tokenizer.decode(LETTERS[:6])


@pytest.mark.parametrize("lives_for", [0, 3])
def test_a_sample_with_a_guide_goes_on_elsewhere_only_before_its_first_token(
    tiny_deployment, lives_for, text
):
    """The guide says what the whole output is, not what is left of it."""
    servers = {"first": Streaming(lives_for), "second": Streaming(lives_for)}
    guide = Guide(EBNF, 'root ::= "a"')
    if lives_for:
        with pytest.raises(EndpointUnavailable, match="middle of a guided sample"):
            sampled(tiny_deployment, servers, guide=guide)
        return
    deltas, _, _ = sampled(tiny_deployment, {**servers, "third": Streaming()}, guide=guide)
    assert text_of(deltas) == text


@pytest.mark.parametrize("lives_for", range(7))
def test_a_sample_goes_on_elsewhere_after_the_tokens_that_it_has(tiny_deployment, lives_for, text):
    dying, other = Streaming(lives_for), Streaming()
    deltas, (choice,), record = sampled(tiny_deployment, {"a": dying, "b": other})
    assert text_of(deltas) == text
    assert (choice.finish, choice.tokens) == ("length", 6)
    if lives_for < 6:
        assert record.replica == "b"
        assert other.calls[0].max_new_tokens == 6 - lives_for


def test_a_sample_whose_last_word_is_lost_is_whole(tiny_deployment, text):
    class LosesTheEnd(Streaming):
        async def stream(self, call):
            async for new in super().stream(call):
                yield new
            raise EndpointUnavailable("gone")

    other = Streaming()
    deltas, (choice,), _ = sampled(tiny_deployment, {"a": LosesTheEnd(), "b": other})
    assert text_of(deltas) == text
    assert (choice.finish, other.calls) == ("length", [])


def test_one_server_is_asked_again_and_then_its_failure_is_told(tiny_deployment, monkeypatch):
    monkeypatch.setattr("tts.fleet.replicas.RETRY_WAIT_S", 0)
    dead = Streaming(0)
    with pytest.raises(EndpointUnavailable, match="gone"):
        sampled(tiny_deployment, {"a": dead})
    assert len(dead.calls) == 4


def test_a_sample_that_has_its_stop_string_is_ended_on_the_engine(tiny_deployment, tokenizer):
    server, stop = Streaming(), tokenizer.decode(LETTERS[2:3])
    _, (choice,), _ = sampled(tiny_deployment, {"a": server}, limit=15, stop=stop)
    assert (choice.finish, choice.tokens) == ("stop", 3)
    assert server.closed == 1


@pytest.mark.parametrize("kind", [Whole, Streaming])
@pytest.mark.parametrize("stream", [False, True])
def test_the_gateway_serves_a_generator_of_the_programs_own(tiny_deployment, kind, stream, text):
    endpoints = {"generator": kind(), "verifier": ScriptedVerifier()}
    body = {"model": "tiny", "prompt": [7], "max_tokens": 6}
    (status, said), (refused, why) = answers(
        tiny_deployment,
        endpoints,
        (TEXT, {**body, "stream": stream}),
        (TEXT, {**body, "logprobs": 0}),
    )
    assert status == 200
    choices = [
        choice for each in (chunks_of(said) if stream else [said]) for choice in each["choices"]
    ]
    assert "".join(choice["text"] for choice in choices) == text
    assert choices[-1]["finish_reason"] == "length"
    pieces = 6 if stream and kind is Streaming else 1
    assert len([choice for choice in choices if choice["text"]]) == pieces
    assert (refused, why["error"]["code"]) == (400, "unsupported_parameter")  # it gives none


def test_a_choice_ends_with_its_last_delta_however_late_that_is_read(tiny_deployment, text):
    async def late(choices, deltas):
        for _ in range(100):
            await asyncio.sleep(0)
        waiting = sum(choice.tokens for choice in choices) - len(deltas)
        assert waiting <= 4  # for each choice one that waits, and one more

    deltas, _, _ = sampled(tiny_deployment, {"a": Streaming()}, read=late, n=2)
    for index in (0, 1):
        mine = [delta for delta in deltas if delta.sample.index == index]
        assert [delta.finish for delta in mine] == [*[None] * 6, "length"]
        assert text_of(mine) == text


def test_every_choice_has_a_seed_of_its_own_that_repeats(tiny_deployment):
    generator = TextGenerator(Models.load(tiny_deployment), None, FilterChain())

    def seeds(**fields):
        request = Request(model="tiny", n=3, **fields)
        return [c.seed for c in generator.calls(request, Sampling([[1], [2]]), [5, 5])]

    assert seeds(seed=1) == seeds(seed=1)
    assert len({*seeds(seed=1), *seeds(seed=2)}) == 12
    assert seeds() != seeds()


def test_a_stop_at_the_step_delimiter_is_left_to_the_engine(tiny_deployment):
    models = Models.load(tiny_deployment)
    generator = TextGenerator(models, None, FilterChain())
    request = Request(model="tiny", stop="\n\n", stop_token_ids=[9])
    (call,) = generator.calls(request, Sampling([[1]]), [5])
    assert call.stop_at_step
    assert call.stop_words == ((9,),)
    assert call.streaming
