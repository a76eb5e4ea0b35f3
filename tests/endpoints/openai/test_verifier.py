"""The verifier behind a server: labels, likelihoods, heads."""

import math
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.endpoints.openai.stand_in import ROOT, TOKENIZER, StandIn, log_prob

from tts.base.errors import EndpointError, RequestRefused, ServerError
from tts.build.model_config import read_model_config
from tts.build.spec import VerifierSpec
from tts.build.tokenizer import Tokenizer
from tts.build.verifiers.dialogue import label_ids, verifier_dialogue
from tts.build.verifiers.untrained import last_step
from tts.endpoints.base import ScoreCall
from tts.endpoints.openai.answers import mean_weight
from tts.endpoints.openai.server import OpenAIServer
from tts.endpoints.openai.verifier import OpenAIVerifier, head_score

IDS = [30, 31, 32]


def section(checkpoint="demo-verifier", **fields):
    folder = ROOT / "engines" / "checkpoints" / checkpoint
    labels = {"+": 1.0, "-": 0.0}
    return VerifierSpec.model_construct(checkpoint=folder, **{"labels": labels} | fields)


async def scored(stand_in, spec, ids=IDS, failures=()):
    """The score of a dialogue, and the bodies of the requests for it."""
    async with stand_in as url, OpenAIServer(url, patience_s=0) as server:
        await server.probe()
        stand_in.asked.clear()
        stand_in.failures = [*failures]
        verifier = OpenAIVerifier(server, Tokenizer(Path(spec.checkpoint)), spec)
        call = ScoreCall(np.asarray(ids, dtype=np.int32))
        return (await verifier.score(call)).score, stand_in.asked


@pytest.mark.parametrize("kind", ["vllm", "llama"])
async def test_a_score_is_the_share_of_the_positive_label(kind):
    spec = section()
    score, (body,) = await scored(StandIn(kind), spec)
    labels = label_ids(TOKENIZER, spec.labels)
    assert body["prompt"] == IDS
    assert score == pytest.approx(mean_weight([log_prob(IDS, each) for each in labels], (1, 0)))


class OlderVllm(StandIn):
    """Knows no logprob_token_ids: it gives the likeliest tokens."""

    def _vllm(self, ids, body):
        answer = super()._vllm(ids, body)
        if "logprob_token_ids" in body:
            answer["choices"][0]["logprobs"]["top_logprobs"] = [{"token_id:99": -0.1}]
        return answer


async def test_labels_that_are_not_among_the_likeliest_are_appended_and_asked_for():
    spec = section()
    labels = label_ids(TOKENIZER, spec.labels)
    score, bodies = await scored(OlderVllm(), spec)
    assert score == pytest.approx(mean_weight([log_prob(IDS, each) for each in labels], (1, 0)))
    assert sorted(body["prompt"][-1] for body in bodies[1:]) == sorted(labels)


async def test_labels_that_are_nowhere_say_what_follows():
    class Neither(OlderVllm):
        def _vllm(self, ids, body):
            if "prompt_logprobs" in body:
                return self.said["sample"]["answer"]
            return super()._vllm(ids, body)

    with pytest.raises(
        RequestRefused, match=r"label '\+' and '-'. All that follows .* at most 0.9"
    ):
        await scored(Neither(), section())


async def test_a_likelihood_is_the_geometric_mean_over_the_last_step():
    spec = section("demo-generator", format="likelihood")
    tokenizer = Tokenizer(Path(spec.checkpoint))
    dialogue = verifier_dialogue(tokenizer, spec)
    ids = dialogue.extend(dialogue.first("What is 1 + 1?", "First."), "So it is 2.")
    score, (body,) = await scored(StandIn(), spec, ids)
    vocabulary = read_model_config(tokenizer.checkpoint).vocab_size
    tokens, places = (each.tolist() for each in last_step(ids, vocabulary))
    assert tokenizer.decode([tokens[place] for place in places]) == "So it is 2."
    assert body["prompt"] == tokens
    mean = math.fsum(log_prob(tokens[:place], tokens[place]) for place in places) / len(places)
    assert score == pytest.approx(math.exp(mean))


async def test_formats_that_a_server_cannot_score_are_refused_with_the_reason():
    with pytest.raises(ServerError, match="no log-probabilities of a prompt"):
        await scored(StandIn("llama"), section("demo-generator", format="likelihood"))
    with pytest.raises(ServerError, match="no scores of a head"):
        await scored(StandIn(), section("demo-classification", format="qwen2.5-math-prm"))


async def test_a_score_of_nothing_is_a_sentence():
    nothing = [lambda: web.json_response({"choices": [{"logprobs": None}]})]
    with pytest.raises(EndpointError, match="holds None where log-probabilities should be"):
        await scored(StandIn(), section(), failures=nothing)


def head(*rows):
    return {"data": [{"index": 0, "object": "pooling", "data": list(rows)}]}


@given(st.floats(-50, 50), st.floats(-50, 50))
def test_a_head_scores_by_its_last_row(wrong, right):
    expected = 1 / (1 + math.exp(wrong - right))
    assert head_score(head([9.0, 1.0], [wrong, right])) == pytest.approx(expected)
    assert head_score(head([right])) == pytest.approx(1 / (1 + math.exp(-right)))


def test_a_head_without_a_place_says_what_to_tell_the_server():
    with pytest.raises(EndpointError, match="no place") as caught:
        head_score(head())
    assert "step_tag_id" in str(caught.value)


def test_a_classifier_of_sequences_that_vllm_served_scores_by_its_one_row():
    """Random weights, whose logit transformers gives as 0.69123012."""
    score = head_score(head(0.6912310719490051))
    assert score == pytest.approx(1 / (1 + math.exp(-0.69123012)), abs=1e-6)
    assert head_score(head(0.0, 1.0)) == pytest.approx(1 / (1 + math.exp(-1)))


def test_a_head_that_vllm_served_scores_as_its_activation_says():
    """Of demo-classification, without and with its activation, after two steps."""
    logits = head([0.17334206402301788, -0.09484371542930603], [0.2202692926, 0.07051263004541397])
    assert head_score(logits) == pytest.approx(0.46263065934181213, abs=1e-6)
