"""What a model says of itself: enough to make a form of, and true of the requests that it takes."""

import asyncio
import json

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.gateway.in_process import answered, post, serving

from tts.build.tokenizer import Tokenizer
from tts.session.doubts import DOUBTFUL
from tts.strategies.catalog import STRATEGIES


@pytest.fixture
def asked(tiny_deployment, tokenizer_folder):
    """Does something with a gateway's application over scripted engines."""
    tokenizer = Tokenizer(tokenizer_folder)
    words = [tokenizer.encode(r"\boxed{4}")], tokenizer.encode("\n\n")

    def ask(deployment, work):
        async def go():
            endpoints = {"generator": ScriptedGenerator(*words), "verifier": ScriptedVerifier()}
            async with serving(deployment or tiny_deployment, endpoints) as app:
                return await work(app)

        return asyncio.run(go())

    return ask


def card(app, strategy=""):
    async def get():
        name = f"tiny:{strategy}" if strategy else "tiny"
        status, _, said = await answered(app, f"/v1/models/{name}")
        assert status == 200, said
        return json.loads(said)["tts"]

    return get()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_search_names_its_parameters_with_defaults_that_it_takes(asked, strategy):
    async def work(app):
        known = await card(app, strategy)
        fields = {**known["sampling"], **known["parameters"]}
        for name, facts in fields.items():
            assert facts["description"].endswith("."), name
            assert facts.keys() & {"type", "enum", "anyOf"}, name
        assert not fields.keys() & STRATEGIES[strategy].fixed.keys()
        given = {
            name: facts["default"]
            for name, facts in known["parameters"].items()
            if facts["default"] is not None and facts.get("type") != "object"
        }
        sampling = {name: facts["default"] for name, facts in known["sampling"].items()}
        body = {
            "model": f"tiny:{strategy}",
            "messages": [{"role": "user", "content": "1 + 3?"}],
            "tts": {"parameters": given},
            **sampling,
        }
        status, said = await post(app, "/v1/chat/completions", body)
        assert status == 200, said
        return known

    known = asked(None, work)
    assert known["strategy"] == strategy
    assert known["about"] == STRATEGIES[strategy].summary
    assert known["warns_below"] == DOUBTFUL


def test_plain_generation_has_sampling_alone(asked):
    known = asked(None, card)
    assert known["strategy"] is None
    assert list(known["sampling"]) == ["temperature", "top_p", "max_tokens", "seed"]
    assert known["sampling"]["temperature"]["default"] == 1.0
    assert known["parameters"] == {}


def test_a_default_of_the_deployment_is_the_default(asked, tiny_deployment):
    deployment = tiny_deployment.model_copy(
        update={"strategies": {"beam-search": {"n": 8, "beam_width": 2}}}
    )
    known = asked(deployment, lambda app: card(app, "beam-search"))
    assert known["parameters"]["n"]["default"] == 8
    assert known["parameters"]["beam_width"]["default"] == 2


def test_other_models_than_the_demo_pair_have_other_examples(asked):
    assert not any(text.startswith("Compute") for text in asked(None, card)["examples"])
