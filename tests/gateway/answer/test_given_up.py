"""Requests that are given up, and the tokens that their key is charged."""

import asyncio
import json

import pytest
from tests.endpoints.scripted import ScriptedGenerator
from tests.gateway.in_process import CHAT, KEY, TEXT, Kept, exchanged, key_ring, run

from tts.endpoints.streaming import NewTokens

READ, REST = [1, 2], 5
"""Tokens that come of each output, and how many more the engine has written by then."""
PLAIN = TEXT, {"model": "tiny", "prompt": "Compute", "n": 3, "max_tokens": 50}
ASKED = {"messages": [{"role": "user", "content": "Compute 2 + 2."}]}
BEST = CHAT, {"model": "tiny:best-of-n", **ASKED, "tts": {"n": 4}}
TOOL = {"type": "function", "function": {"name": "add"}}
CANDIDATES = BEST[0], {**BEST[1], "tools": [TOOL]}
BEAM = CHAT, {"model": "tiny:beam-search", **ASKED, "stream": True, "tts": {"n": 4}}


class Endless:
    """A generator that ends no output, but says what it has written when it is given up."""

    def __init__(self):
        self.running = 0
        self.busy = asyncio.Event()

    async def written(self, call):
        self.running += 1
        if self.running >= 3:
            self.busy.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.001)
            call.on_rest(REST)

    async def generate(self, call):
        await self.written(call)

    async def stream(self, call):
        yield NewTokens(READ)
        await self.written(call)


class OneStep(ScriptedGenerator):
    """A generator that writes the first steps alone, and no further ones to their end."""

    def __init__(self, steps, endless):
        super().__init__(*steps, end=0.0)
        self.endless, self.least = endless, None

    async def generate(self, call):
        self.least = self.least or len(call.input_ids)
        if len(call.input_ids) > self.least:
            return await self.endless.generate(call)
        return await super().generate(call)


async def left(app, busy):
    await busy.wait()


async def stopped(app, busy):
    await busy.wait()
    app._service.drain._began.set()
    await app._service.drain.end(app._service.session.stop_searches)
    await asyncio.Event().wait()


async def late(app, busy):
    await asyncio.Event().wait()


def given_up(deployment, endpoints, asked, how, **settings):
    """The answer to a request that is given up, and its record."""
    (path, body), kept = asked, Kept()
    generator = endpoints["generator"]
    busy = getattr(generator, "endless", generator).busy

    async def work(app):
        came = [{"type": "http.request", "body": json.dumps(body).encode()}]

        async def receive():
            if came:
                return came.pop()
            await how(app, busy)
            return {"type": "http.disconnect"}

        return await exchanged(app, path, receive, KEY)

    options = {"keyring": key_ring(), "recorder": kept, **settings}
    answer = run(work, deployment, endpoints, **options)
    (record,) = kept.ended
    return answer, record


@pytest.mark.parametrize(
    ("asked", "how", "settings", "tokens", "outcome", "status"),
    [
        (PLAIN, left, {}, 3 * (len(READ) + REST), "cancelled", None),
        (PLAIN, late, {"deadline_s": 0.05}, 3 * (len(READ) + REST), "deadline", 504),
        (PLAIN, stopped, {}, 3 * (len(READ) + REST), "failed", 503),
        (BEST, left, {}, 4 * REST, "cancelled", None),
        (BEST, late, {"deadline_s": 0.05}, 4 * REST, "deadline", 504),
        (BEST, stopped, {}, 4 * REST, "failed", 503),
        (CANDIDATES, left, {}, 4 * (len(READ) + REST), "cancelled", None),
        (CANDIDATES, late, {"deadline_s": 0.05}, 4 * (len(READ) + REST), "deadline", 504),
    ],
)
def test_what_engines_have_written_of_a_request_is_charged_when_it_is_given_up(
    tiny_deployment, endpoints, asked, how, settings, tokens, outcome, status
):
    endpoints["generator"] = Endless()
    answer, record = given_up(tiny_deployment, endpoints, asked, how, **settings)
    assert (record.answer_tokens + record.search_tokens, record.outcome) == (tokens, outcome)
    assert status == (answer and answer[0])
    if how is stopped:
        _, headers, said = answer
        assert json.loads(said)["error"]["code"] == "gateway_stopped"
        assert "retry-after" in headers


def test_a_search_that_is_left_is_charged_its_steps_their_scores_and_what_runs(
    tiny_deployment, endpoints
):
    writer = endpoints["generator"]
    endpoints["generator"] = OneStep((writer.words, writer.delimiter), Endless())
    _, record = given_up(tiny_deployment, endpoints, BEAM, left)
    assert record.outcome == "cancelled"
    assert record.search_tokens > endpoints["generator"].endless.running * REST
    assert record.verifier_tokens > 0
