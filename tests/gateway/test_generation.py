"""Samples as text: seeds, and what happens when a server goes away."""

import asyncio
from types import SimpleNamespace

import pytest

from tts.build.errors import EndpointUnavailable
from tts.endpoints.token_stream import NewTokens
from tts.gateway.generation import TextGenerator
from tts.gateway.observability import RequestRecord
from tts.gateway.openai.requests import Request
from tts.gateway.safety import FilterChain
from tts.prompting import Models
from tts.session.replicas import EnginePair, Replicas

LETTERS = list(range(40, 60))


class Streams:
    """A server that gives the letters that follow the prompt, and may go away."""

    def __init__(self, lives_for=None):
        self.lives_for, self.calls = lives_for, []

    def start(self, call):
        self.calls.append(call)
        already = len(call.input_ids) - 1  # the prompt has one id
        left = LETTERS[already : already + call.max_new_tokens]
        return Run(left, self)

    async def aclose(self):
        pass


class Run:
    def __init__(self, left, server):
        self.left, self.server = left, server

    async def next(self):
        if self.server.lives_for == 0:
            raise EndpointUnavailable("gone")
        if self.server.lives_for is not None:
            self.server.lives_for -= 1
        token, *self.left = self.left
        return NewTokens([token], [], not self.left)

    def cancel(self):
        pass


def run(tiny_deployment, servers, limit=6, **fields):
    """The text of a sample, its choice, and the record."""
    models = Models.load(tiny_deployment)

    async def go():
        async with Replicas(None) as replicas:
            for name in servers:
                pair = EnginePair(name, None, None, SimpleNamespace(address=name, patience_s=0))
                replicas.use(pair)
            if len(servers) > 1:
                replicas.be_elastic()
            generator = TextGenerator(models, replicas, FilterChain())
            generator._streams = {
                pair: (servers[pair.name], replicas.lost(pair)) for pair in replicas.pairs
            }
            request = Request(model="tiny", stream=True, **fields)
            (call,) = generator.calls([[7]], request, [limit], logs=False)
            choice = generator.choice(0, call, request)
            record = RequestRecord(id="", endpoint="", time=0.0, t0=0.0)
            text = ""
            async for delta in generator.deltas(call, choice, record, "key"):
                text += delta.text
            return text, choice, record

    return asyncio.run(asyncio.wait_for(go(), 20)), models


@pytest.mark.parametrize("lives_for", range(7))
def test_a_sample_goes_on_elsewhere_after_the_tokens_that_it_has(tiny_deployment, lives_for):
    dying, other = Streams(lives_for), Streams()
    (text, choice, record), models = run(tiny_deployment, {"a": dying, "b": other})
    assert text == models.generator.decode(LETTERS[:6])
    assert (choice.finish, choice.tokens) == ("length", 6)
    if lives_for < 6:
        assert record.replica == "b"
        assert other.calls[0].max_new_tokens == 6 - lives_for


def test_one_server_is_asked_again_and_then_its_failure_is_told(tiny_deployment, monkeypatch):
    monkeypatch.setattr("tts.gateway.generation.RETRY_WAIT_S", 0)
    dead = Streams(0)
    with pytest.raises(EndpointUnavailable, match="gone"):
        run(tiny_deployment, {"a": dead})
    assert len(dead.calls) == 4


def test_a_choice_ends_with_its_last_delta_however_late_that_is_read(tiny_deployment):
    models = Models.load(tiny_deployment)

    async def go():
        async with Replicas(None) as replicas:
            pair = EnginePair("a", None, None, SimpleNamespace(address="a", patience_s=0))
            replicas.use(pair)
            generator = TextGenerator(models, replicas, FilterChain())
            generator._streams = {pair: (Streams(), replicas.lost(pair))}
            request = Request(model="tiny", stream=True, n=2)
            calls = generator.calls([[7]], request, [6], logs=False)
            choices = [generator.choice(i, call, request) for i, call in enumerate(calls)]
            record = RequestRecord(id="", endpoint="", time=0.0, t0=0.0)
            read = []
            async for delta in generator.merged(calls, choices, record, "key"):
                read.append(delta)
                while not all(choice.finish for choice in choices):
                    await asyncio.sleep(0)
            return read

    read = asyncio.run(asyncio.wait_for(go(), 20))
    for index in (0, 1):
        mine = [delta for delta in read if delta.choice.index == index]
        assert [delta.finish for delta in mine] == [*[None] * 5, "length"]
        assert "".join(delta.text for delta in mine) == models.generator.decode(LETTERS[:6])


def test_streams_to_a_server_that_is_back_are_opened_anew(tiny_deployment, monkeypatch):
    """gRPC waits, more and more, before it connects again to what was not there."""
    monkeypatch.setattr("tts.gateway.generation.RETRY_WAIT_S", 0)
    models, opened, closed = Models.load(tiny_deployment), [], []

    class Dying(Streams):
        async def aclose(self):
            closed.append(self)

    def streams(address):
        opened.append(Dying(None if opened else 2))
        return opened[-1]

    monkeypatch.setattr("tts.gateway.generation.TokenStreams", streams)

    async def go():
        async with Replicas(None) as replicas:
            pair = EnginePair("a", None, None, SimpleNamespace(address="a", patience_s=0))
            replicas.use(pair)
            replicas.be_elastic()
            generator = TextGenerator(models, replicas, FilterChain())
            (call,) = generator.calls([[7]], Request(model="tiny", stream=True), [6], logs=False)
            choice = generator.choice(0, call, Request(model="tiny"))
            record = RequestRecord(id="", endpoint="", time=0.0, t0=0.0)
            text = ""
            async for delta in generator.deltas(call, choice, record, "key"):
                text += delta.text
            return text

    text = asyncio.run(asyncio.wait_for(go(), 20))
    assert text == models.generator.decode(LETTERS[:6])
    assert closed == opened[:1]
    assert len(opened) == 2


def test_every_choice_has_a_seed_of_its_own_that_repeats(tiny_deployment):
    generator = TextGenerator(Models.load(tiny_deployment), None, FilterChain())

    def seeds(**fields):
        request = Request(model="tiny", n=3, **fields)
        return [c.seed for c in generator.calls([[1], [2]], request, [5, 5], logs=False)]

    assert seeds(seed=1) == seeds(seed=1)
    assert len({*seeds(seed=1), *seeds(seed=2)}) == 12
    assert seeds() != seeds()


def test_a_stop_at_the_step_delimiter_is_left_to_the_engine(tiny_deployment):
    models = Models.load(tiny_deployment)
    generator = TextGenerator(models, None, FilterChain())
    request = Request(model="tiny", stop="\n\n", stop_token_ids=[9])
    (call,) = generator.calls([[1]], request, [5], logs=False)
    assert set(models.step_stop_words) < set(call.stop_words)
    assert (9,) in call.stop_words
    assert call.streaming
