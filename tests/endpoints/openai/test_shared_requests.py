"""Several samples or prompts of one request are answered as by requests of their own."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from tests.endpoints.openai.asking import CALL, PROMPT, opened
from tests.endpoints.openai.stand_in import ROOT, TOKENIZER, StandIn, drawn, log_prob

from tts.build.spec import VerifierSpec
from tts.build.verifiers.dialogue import label_ids
from tts.endpoints.base import ScoreCall
from tts.endpoints.openai.answers import mean_weight
from tts.endpoints.openai.verifier import OpenAIVerifier

pytestmark = pytest.mark.anyio
TOP = 2**63
SPEC = VerifierSpec.model_construct(
    checkpoint=ROOT / "engines" / "checkpoints" / "demo-verifier", labels={"+": 1.0, "-": 0.0}
)
DIALOGUES = [[30, 31, 32], [30, 31], [40, 41, 42, 43]]


class EachToken(StandIn):
    """An older server, which streams every token."""

    async def _several(self, ids, body):
        return await self._stream(ids, *self._tokens(ids, body, 12), body)


def alone(seed):
    return drawn(PROMPT.tolist(), seed, CALL.max_new_tokens)


def counts(stand_in):
    """How many samples each request was for."""
    return sorted(body.get("n", 1) for body in stand_in.asked)


async def several(generator, seeds, **changes):
    calls = [replace(CALL, seed=seed, on_rest=[].append, **changes) for seed in seeds]
    return await asyncio.gather(*map(generator.generate, calls))


@pytest.mark.parametrize(
    ("seeds", "samples"),
    [
        ([7, 8, 9, 10], [4]),
        ([9, 7, 10, 8], [4]),
        ([1, 2, 3, 5, 7, 8], [1, 2, 3]),
        ([4, 4, 5], [1, 2]),
        ([TOP - 2, TOP - 1, 0, 1], [2, 2]),
        ([3], [1]),
    ],
)
async def test_seeds_that_count_up_are_one_request(seeds, samples):
    stand_in = StandIn()
    async with opened(stand_in) as (_, generator):
        assert await several(generator, seeds) == [alone(seed) for seed in seeds]
    assert counts(stand_in) == samples


async def test_what_differs_in_more_than_the_seed_is_not_drawn_together():
    stand_in = StandIn()
    other = replace(CALL, input_ids=PROMPT[:2], seed=8)
    async with opened(stand_in) as (_, generator):
        await asyncio.gather(*map(generator.generate, (CALL, other, replace(CALL, top_k=3))))
        await several(generator, [1, 2], temperature=0.0)
        await several(generator, [1, 2], log_probs=True)
    assert counts(stand_in) == [1] * 7


async def test_what_a_broken_answer_left_out_is_asked_for_alone():
    stand_in = StandIn()
    async with opened(stand_in) as (_, generator):
        stand_in.stops_after = 6  # of eight events: two samples have ended
        assert await several(generator, range(4)) == [alone(seed) for seed in range(4)]
        stand_in.failures = [lambda: stand_in._error("refused")]
        assert await several(generator, range(2)) == [alone(seed) for seed in range(2)]
    assert counts(stand_in) == [1, 1, 1, 1, 2, 4]


async def scored(server, dialogues):
    verifier = OpenAIVerifier(server, TOKENIZER, SPEC)
    calls = [ScoreCall(np.asarray(ids, dtype=np.int32)) for ids in dialogues]
    results = await asyncio.gather(*map(verifier.score, calls))
    labels = label_ids(TOKENIZER, SPEC.labels)
    alone = [mean_weight([log_prob(ids, each) for each in labels], (1, 0)) for ids in dialogues]
    assert [result.score for result in results] == pytest.approx(alone)


class OnePrompt(StandIn):
    """A server that takes one prompt a request."""

    def _each(self, body):
        return self._error("refused")


@pytest.mark.parametrize(
    ("stand_in", "stops_after", "prompts"),
    [
        (StandIn(), None, [DIALOGUES]),
        (StandIn(), 1, [DIALOGUES, *DIALOGUES[:2]]),
        (OnePrompt(), None, DIALOGUES),
        (StandIn("llama"), None, DIALOGUES),
    ],
)
async def test_dialogues_that_are_scored_at_once_are_one_request(stand_in, stops_after, prompts):
    """What a broken answer left out, and each where a server takes one, is asked for alone."""
    async with opened(stand_in) as (server, _):
        stand_in.stops_after = stops_after
        await scored(server, DIALOGUES)
        assert [body["prompt"] for body in stand_in.asked] == prompts
        await scored(server, DIALOGUES[:1])
    assert stand_in.asked[-1]["prompt"] == DIALOGUES[0]


async def test_a_request_for_scores_ends_on_the_server_when_nobody_waits_for_any():
    stand_in = StandIn()
    async with opened(stand_in) as (server, _):
        stand_in.hold.clear()
        scoring = asyncio.ensure_future(scored(server, DIALOGUES))
        while not stand_in.asked:
            await asyncio.sleep(0.01)
        scoring.cancel()
        while not stand_in.given_up:
            await asyncio.sleep(0.01)


async def test_a_request_ends_on_the_server_when_nobody_waits_for_any_of_its_samples():
    stand_in = StandIn()
    async with opened(stand_in) as (_, generator):
        stand_in.hold.clear()
        calls = [
            asyncio.ensure_future(generator.generate(replace(CALL, seed=seed))) for seed in range(3)
        ]
        while not stand_in.asked:
            await asyncio.sleep(0.01)
        for call in calls[:2]:
            call.cancel()
        await asyncio.wait(calls[:2])
        assert not stand_in.given_up
        stand_in.hold.set()
        assert await calls[2] == alone(2)
        stand_in.hold.clear()
        calls = [
            asyncio.ensure_future(generator.generate(replace(CALL, seed=seed))) for seed in range(3)
        ]
        while len(stand_in.asked) < 2:
            await asyncio.sleep(0.01)
        for call in calls:
            call.cancel()
        while not stand_in.given_up:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("step", [0, 2])
async def test_a_server_with_other_seeds_for_further_samples_draws_each_alone(step):
    stand_in = StandIn()
    stand_in.seed_step = step
    await _draws_alone(stand_in)


@pytest.mark.parametrize("stand_in", [EachToken(), StandIn("llama")])
async def test_a_server_that_does_not_draw_several_at_little_cost_draws_each_alone(stand_in):
    await _draws_alone(stand_in)


async def _draws_alone(stand_in):
    async with opened(stand_in) as (server, generator):
        assert not server.abilities.siblings
        assert await several(generator, [7, 8]) == [alone(7), alone(8)]
    assert counts(stand_in) == [1, 1]
