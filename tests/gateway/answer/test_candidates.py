"""Searches with tools: what their tokens cost whoever leaves early, and the same asked twice."""

import asyncio
import json

import pytest
from tests.gateway.answer.test_tools import CHAT, QUESTION, TOOLS, choice_of
from tests.gateway.in_process import post, serving

from tts.build.tokenizer import Tokenizer
from tts.endpoints.base import NewTokens
from tts.gateway.observability import Recorder
from tts.gateway.safety import ApiKey, KeyLimits
from tts.lab.simulation.virtual_time import run_virtual

LENGTH = 17
"""Tokens of a whole candidate."""


class Hangs:
    """A generator of which the first outputs are complete; the others hang before the last token.

    Engines tell of tokens as they come where `streaming` says so, and else at the end.
    """

    def __init__(self, tokenizer, complete):
        self.token, self.complete = tokenizer.encode("5")[0], complete
        self.asked = 0
        self.hanging = 0
        self.hang = asyncio.Event()

    async def stream(self, call):
        self.asked += 1
        hangs = self.asked > self.complete
        for place in range(1, LENGTH + 1):
            if hangs and place == LENGTH:
                self.hanging += 1
                await self.hang.wait()
            if call.streaming:
                yield NewTokens([self.token], [], place == LENGTH)
        if not call.streaming:
            yield NewTokens([self.token] * LENGTH, [], final=True)

    async def generate(self, call):
        return [token async for new in self.stream(call) for token in new.ids]


class Kept(Recorder):
    """A recorder that keeps the records of requests that have ended."""

    def __init__(self):
        super().__init__()
        self.ended = []

    def end(self, record):
        self.ended.append(record)
        super().end(record)


@pytest.fixture
def run(tiny_deployment, tokenizer_folder, monkeypatch):
    """Runs a function of the application and its generator; its result and the records."""

    def running(work, complete=0, keyring=None):
        generator, kept = Hangs(Tokenizer(tokenizer_folder), complete), Kept()
        updated = tiny_deployment.generator.model_copy(update={"max_seq_len": 2048})
        deployment = tiny_deployment.model_copy(update={"generator": updated})

        async def go():
            endpoints = {"generator": generator, "verifier": lambda question, steps: 0.5}
            async with serving(deployment, endpoints, keyring=keyring, recorder=kept) as app:
                return await work(app, generator)

        return run_virtual(go()), kept.ended

    return running


def search(n=8, **fields):
    options = {"n": n, "deadline_s": 5}
    return {
        "model": "tiny:majority-vote",
        "messages": [QUESTION],
        "tools": TOOLS,
        "tts": options,
        **fields,
    }


async def until(what):
    while not what():
        await asyncio.sleep(0)


async def left(app, body, generator, n):
    """A request whose client goes away when so many outputs have come almost to their end."""
    came = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive():
        if came:
            return came.pop()
        await until(lambda: generator.hanging == n)
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    headers = [(b"authorization", b"Bearer x")]
    scope = {"type": "http", "path": CHAT, "method": "POST", "headers": headers}
    await app(scope, receive, send)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("complete", [1, 3])
def test_a_deadline_counts_the_tokens_of_what_it_cuts_off(run, streams, complete):
    (status, said), (record,) = run(
        lambda app, _: post(
            app, CHAT, search(stream=streams, stream_options={"include_usage": True})
        ),
        complete=complete,
    )
    generated = complete * LENGTH + (8 - complete) * (LENGTH - 1)
    assert choice_of((status, said))[0]["content"] == "5" * LENGTH
    if not streams:
        assert said["usage"]["completion_tokens"] == generated
        assert said["tts"]["limit"] == "deadline"
    assert record.answer_tokens + record.search_tokens == generated


def test_tokens_count_also_where_no_candidate_is_complete(run):
    (status, said), (record,) = run(lambda app, _: post(app, CHAT, search()))
    assert (status, said["error"]["code"]) == (504, "deadline_exceeded")
    assert record.search_tokens == 8 * (LENGTH - 1)


@pytest.mark.parametrize("streams", [False, True])
def test_tokens_count_for_a_client_that_goes_away(run, streams):
    body = search(stream=streams)
    _, (record,) = run(lambda app, generator: left(app, body, generator, 8))
    assert record.outcome == "cancelled"
    assert record.search_tokens == 8 * (LENGTH - 1)


class OneKey:
    required = True

    def find(self, key):
        return ApiKey("k", "k", KeyLimits(), created=0.0, revoked=None)


@pytest.mark.parametrize("streams", [False, True])
def test_whoever_has_a_key_pays_for_samples_that_are_left_before_their_end(run, streams):
    body = {"model": "tiny", "messages": [QUESTION], "n": 4, "stream": streams}
    _, (record,) = run(
        lambda app, generator: left(app, body, generator, 4), complete=0, keyring=OneKey()
    )
    assert record.outcome == "cancelled"
    assert record.answer_tokens == 4 * (LENGTH - 1)


def test_the_same_request_twice_is_one_search(run):
    async def work(app, generator):
        first = asyncio.ensure_future(post(app, CHAT, search(n=3)))
        await until(lambda: generator.hanging == 3)
        second = asyncio.ensure_future(post(app, CHAT, search(n=3)))
        other = asyncio.ensure_future(post(app, CHAT, search(n=2)))
        await until(lambda: generator.hanging == 5)
        generator.hang.set()
        answers = [await each for each in (first, second, other)]
        answers.append(await post(app, CHAT, search(n=3)))  # its result is kept
        return answers, generator.asked

    (answers, asked), records = run(work)
    assert asked == 5
    assert {choice_of(answer)[0]["content"] for answer in answers} == {"5" * LENGTH}
    assert len({said["id"] for _, said in answers}) == 4
    assert [record.answer_tokens + record.search_tokens for record in records] == [
        *(3 * LENGTH, 3 * LENGTH, 2 * LENGTH, 3 * LENGTH)
    ]


def test_a_search_goes_on_until_all_who_asked_for_it_have_gone(run):
    async def work(app, generator):
        first = asyncio.ensure_future(left(app, search(n=3), generator, 3))
        await until(lambda: generator.asked)
        second = asyncio.ensure_future(post(app, CHAT, search(n=3)))
        await first
        generator.hang.set()
        return await second

    answer, _ = run(work)
    assert choice_of(answer)[0]["content"] == "5" * LENGTH


@pytest.mark.parametrize("streams", [False, True])
def test_candidates_end_at_a_stop_text(run, streams):
    body = search(n=3, stop=["55555"], include_stop_str_in_output=True, stream=streams)
    answer, (record,) = run(lambda app, _: post(app, CHAT, body), complete=3)
    message, finish = choice_of(answer)
    assert (message["content"], finish) == ("55555", "stop")
    assert record.answer_tokens + record.search_tokens == 3 * 5
