"""Searches with tools: what their tokens cost whoever leaves early, and the same asked twice."""

import asyncio
import json

import pytest
from tests.gateway.in_process import (
    CHAT,
    KEY,
    Kept,
    Streams,
    choice_of,
    chunks_of,
    exchanged,
    key_ring,
    post,
    roomy,
    serving,
)

from tts.endpoints.streaming import NewTokens
from tts.lab.simulation.scenario import run_virtual

QUESTION = {"role": "user", "content": "Compute 2 + 3, then double it."}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
LENGTH = 17
"""Tokens of a whole candidate."""


class Hangs(Streams):
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


@pytest.fixture
def run(tiny_deployment, tokenizer):
    """Runs a function of the application and its generator; its result and the records."""

    def running(work, complete=0, **options):
        generator, kept = Hangs(tokenizer, complete), Kept()

        async def go():
            endpoints = {"generator": generator, "verifier": lambda question, steps: 0.5}
            served = serving(roomy(tiny_deployment), endpoints, recorder=kept, **options)
            async with served as app:
                return await work(app, generator)

        return run_virtual(go()), kept.ended

    return running


def search(n=8, **fields):
    body = {"model": "tiny:majority-vote", "messages": [QUESTION], "tools": [TOOL]}
    return {**body, "tts": {"n": n, "deadline_s": 5}, **fields}


PLAIN = {"model": "tiny", "messages": [QUESTION], "n": 8}


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

    await exchanged(app, CHAT, receive, KEY)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("complete", [1, 3])
def test_a_deadline_counts_the_tokens_of_what_it_cuts_off(run, streams, complete):
    body = search(stream=streams, stream_options={"include_usage": True})
    (status, said), (record,) = run(lambda app, _: post(app, CHAT, body), complete=complete)
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
@pytest.mark.parametrize("searches", [True, False])
def test_tokens_count_for_a_client_that_goes_away(run, searches, streams):
    """Also of samples of whoever has a key, which engines would tell of at their end alone."""
    body = {**(search() if searches else PLAIN), "stream": streams}
    _, (record,) = run(lambda app, generator: left(app, body, generator, 8), keyring=key_ring())
    assert record.outcome == "cancelled"
    left_out = 0, 8 * (LENGTH - 1)
    found = record.answer_tokens, record.search_tokens
    assert found == (left_out if searches else left_out[::-1])


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


@pytest.mark.parametrize("streams", [False, True])
def test_candidates_end_at_a_stop_text(run, streams):
    body = search(n=3, stop=["55555"], include_stop_str_in_output=True, stream=streams)
    answer, (record,) = run(lambda app, _: post(app, CHAT, body), complete=3)
    message, finish = choice_of(answer)
    assert (message["content"], finish) == ("55555", "stop")
    assert record.answer_tokens + record.search_tokens == 3 * 5


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("code", "status", "outcome"),
    [("gateway_stopped", 503, "cancelled"), ("deadline_exceeded", 504, "deadline")],
)
def test_whoever_is_cut_off_is_told_why(run, code, status, outcome, streams):
    async def work(app, generator):
        asked = asyncio.ensure_future(post(app, CHAT, {**PLAIN, "stream": streams}))
        await until(lambda: generator.hanging == 8)
        if code == "gateway_stopped":
            await app._service.drain.end(lambda: None)
        return await asked

    (found, said), (record,) = run(work, deadline_s=5)
    told = chunks_of(said)[-1] if streams else said
    assert (found, told["error"]["code"]) == (200 if streams else status, code)
    assert record.outcome in (outcome, "refused", "failed")
    assert record.answer_tokens == 8 * (LENGTH - 1) * streams
