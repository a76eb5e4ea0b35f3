"""A server that speaks as trtllm-serve's sources have it: asked, sampled, scored, left."""

from dataclasses import replace

import pytest
from aiohttp import web
from tests.endpoints.openai.asking import CALL, PROMPT, generated, opened, streamed
from tests.endpoints.openai.stand_in import END, TOKENIZER, TrtllmServe, drawn, log_prob

from tts.base.errors import EndpointUnavailable, RequestRefused
from tts.endpoints.openai.dialects import TRTLLM, log_probs_of
from tts.endpoints.openai.http_client import Http
from tts.endpoints.openai.server import OpenAIServer
from tts.endpoints.shaping import Shaping

HELD = next(t for t, text in enumerate(TOKENIZER.token_texts) if text and text[0] == ".")
STEP = replace(CALL, stop_at_step=True)


async def test_it_is_named_with_what_it_can_do():
    async with TrtllmServe() as url, OpenAIServer(url) as server:
        known = await server.probe()
    assert known.describe() == (
        "trtllm-serve 1.3.0rc25 serving smollm2: seeds honoured; "
        "log-probabilities of tokens, labels; grammars (response_format)"
    )


@pytest.mark.parametrize(
    ("call", "output", "ids"),
    [
        (CALL, None, drawn(PROMPT.tolist(), 7, 12)),
        (CALL, [40, 41, END, 42], [40, 41]),
        (replace(CALL, ignore_end=True), [40, END, 42], [40, END, 42]),
        (replace(CALL, stop_words=((40,),)), [40, 41], [40]),
        (STEP, [40, HELD, 41, 42], [40, HELD]),
        (STEP, [40, 50, 51, 42], [40, 50, 51]),  # an end of several tokens is cut here
    ],
)
async def test_ids_are_asked_and_answered(call, output, ids):
    """Every token that ends a step is named to it."""
    given, (body,) = await generated(TrtllmServe(output), call, end_words=((HELD,), (50, 51)))
    assert given == ids
    assert (body["prompt"], body["detokenize"]) == (PROMPT.tolist(), False)
    assert body.get("stop") == (["\n\n"] if call.stop_at_step else None)
    assert (HELD in body.get("stop_token_ids", ())) == call.stop_at_step


async def test_a_penalty_that_it_would_ignore_is_refused():
    with pytest.raises(RequestRefused, match="presence_penalty is not supported"):
        await generated(TrtllmServe(), replace(CALL, shaping=Shaping(presence_penalty=1.0)))


async def test_streams_carry_tokens_and_their_log_probabilities():
    news = await streamed(TrtllmServe([40, 41, END]), replace(CALL, log_probs=True))
    assert [token for new in news for token in new.ids] == [40, 41]
    before = PROMPT.tolist()
    given = [each for new in news for each in new.log_probs]
    assert given == [log_prob(before, 40), log_prob([*before, 40], 41)]


async def test_labels_are_scored_by_a_draw_that_is_confined_to_them():
    labels = (14, 15)
    async with TrtllmServe() as url:
        http = Http(url, None, 0)
        try:
            body = TRTLLM.labels.body("smollm2", PROMPT.tolist(), labels)
            found = TRTLLM.labels.read(await http.post(TRTLLM.path, body))
        finally:
            await http.aclose()
    texts = tuple(TOKENIZER.token_texts[label] for label in labels)
    wanted = [log_prob(PROMPT.tolist(), label) for label in labels]
    first, second = log_probs_of(found, labels, texts)  # of the whole or of both: as far apart
    assert first - second == pytest.approx(wanted[0] - wanted[1])


@pytest.mark.parametrize("reason", ["cancelled", "timeout"])
async def test_an_output_that_the_engine_gave_up_is_no_output(reason):
    choice = {"text": "", "token_ids": [40], "finish_reason": reason, "logprobs": None}
    stand_in = TrtllmServe()
    async with opened(stand_in) as (server, generator):
        server.limit_patience(0.5)
        stand_in.failures = [lambda: web.json_response({"choices": [choice]})] * 50
        with pytest.raises(EndpointUnavailable, match=f"finish_reason '{reason}'"):
            await generator.generate(CALL)
