"""A server that speaks as trtllm-serve's sources have it: asked, sampled, scored, left."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from aiohttp import web
from tests.endpoints.openai.stand_in import END, TOKENIZER, TrtllmServe, drawn, log_prob

from tts.build.errors import EndpointUnavailable, RequestRefused
from tts.endpoints.base import GenerateCall, Shaping, stream_of
from tts.endpoints.openai import answers
from tts.endpoints.openai.dialects import TRTLLM, label_score
from tts.endpoints.openai.generator import OpenAIGenerator
from tts.endpoints.openai.http_client import Http
from tts.endpoints.openai.server import OpenAIServer

PROMPT = np.asarray([30, 31, 32], dtype=np.int32)
CALL = GenerateCall(PROMPT, 12, 7, 1.0, 1.0, stop_at_step=False)


def with_server(work, output=None, step_words=()):
    """What `work` gives of the stand-in, its server and its generator."""

    async def go():
        stand_in = TrtllmServe(output)
        async with stand_in as url, OpenAIServer(url, patience_s=0.5) as server:
            known = await server.probe()
            stand_in.asked.clear()
            generator = OpenAIGenerator(
                server,
                tokenizer=TOKENIZER,
                end_id=END,
                step_stop_words=step_words,
                step_delimiter="\n\n",
            )
            return await work(stand_in, known, generator)

    return asyncio.run(go())


def sampled(call=CALL, output=None, step_words=()):
    """A sample, and the body that asked for it."""

    async def work(stand_in, known, generator):
        return await generator.generate(call), stand_in.asked[-1]

    return with_server(work, output, step_words)


def test_it_is_named_with_what_it_can_do():
    async def work(stand_in, known, generator):
        return known.describe()

    assert with_server(work) == (
        "trtllm-serve 1.3.0rc25 serving smollm2: seeds honoured; "
        "log-probabilities of tokens, labels; grammars (response_format)"
    )


def test_ids_are_asked_and_answered():
    ids, body = sampled()
    assert ids == drawn(PROMPT.tolist(), 7, 12)
    assert (body["prompt"], body["detokenize"]) == (PROMPT.tolist(), False)
    assert sampled(output=[40, 41, END, 42])[0] == [40, 41]
    assert sampled(replace(CALL, ignore_end=True), [40, END, 42])[0] == [40, END, 42]
    assert sampled(replace(CALL, stop_words=((40,),)), [40, 41])[0] == [40]


def test_a_penalty_that_it_would_ignore_is_refused():
    with pytest.raises(RequestRefused, match="presence_penalty is not supported"):
        sampled(replace(CALL, shaping=Shaping(presence_penalty=1.0)))


def test_every_token_that_ends_a_step_is_named_to_it():
    held = next(t for t, text in enumerate(TOKENIZER.token_texts) if text and text[0] == ".")
    output = [40, held, 41, 42]
    words = ((held,), (50, 51))
    ids, body = sampled(replace(CALL, stop_at_step=True), output, words)
    assert ids == [40, held]
    assert body["stop"] == ["\n\n"]
    assert held in body["stop_token_ids"]
    assert held not in sampled(CALL, output, words)[1]["stop_token_ids"]


def test_an_end_of_several_tokens_is_cut_here():
    ids, _ = sampled(replace(CALL, stop_at_step=True), [40, 50, 51, 42], ((50, 51),))
    assert ids == [40, 50, 51]


def test_streams_carry_tokens_and_their_log_probabilities():
    async def work(stand_in, known, generator):
        return [new async for new in stream_of(generator, replace(CALL, log_probs=True))]

    news = with_server(work, [40, 41, END])
    assert [token for new in news for token in new.ids] == [40, 41]
    before = PROMPT.tolist()
    given = [each for new in news for each in new.log_probs]
    assert given == [log_prob(before, 40), log_prob([*before, 40], 41)]


def test_labels_are_scored_by_a_draw_that_is_confined_to_them():
    labels = (14, 15)

    async def go():
        async with TrtllmServe() as url:
            http = Http(url, None, 0)
            try:
                body = TRTLLM.labels.body("smollm2", PROMPT.tolist(), labels)
                return TRTLLM.labels.read(await http.post(TRTLLM.path, body))
            finally:
                await http.aclose()

    texts = tuple(TOKENIZER.token_texts[label] for label in labels)
    wanted = answers.share(*(log_prob(PROMPT.tolist(), label) for label in labels))
    assert label_score(asyncio.run(go()), labels, texts) == pytest.approx(wanted)


@pytest.mark.parametrize("reason", ["cancelled", "timeout"])
def test_an_output_that_the_engine_gave_up_is_no_output(reason):
    choice = {"text": "", "token_ids": [40], "finish_reason": reason, "logprobs": None}

    async def work(stand_in, known, generator):
        stand_in.failures = [lambda: web.json_response({"choices": [choice]})] * 50
        with pytest.raises(EndpointUnavailable, match=f"finish_reason '{reason}'"):
            await generator.generate(CALL)

    with_server(work)
