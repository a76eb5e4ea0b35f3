"""What a model says of itself: enough to make a form of, and true of the requests that it takes."""

import pytest
from tests.gateway.in_process import CHAT, post, run

from tts.session.outcome import DOUBTFUL
from tts.strategies.catalog import STRATEGIES


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_search_names_its_parameters_with_defaults_that_it_takes(
    tiny_deployment, endpoints, strategy
):
    async def work(app):
        _, model = await post(app, f"/v1/models/tiny:{strategy}")
        known = model["tts"]
        body = {
            "model": f"tiny:{strategy}",
            "messages": [{"role": "user", "content": "1 + 3?"}],
            **{name: facts["default"] for name, facts in known["sampling"].items()},
        }
        given = {
            name: facts["default"]
            for name, facts in known["parameters"].items()
            if facts["default"] is not None and facts.get("type") != "object"
        }
        status, said = await post(app, CHAT, {**body, "tts": {"parameters": given}})
        assert status == 200, said
        return known

    known = run(work, tiny_deployment, endpoints)
    fields = {**known["sampling"], **known["parameters"]}
    for name, facts in fields.items():
        assert facts["description"].endswith("."), name
        assert facts.keys() & {"type", "enum", "anyOf"}, name
    assert not fields.keys() & STRATEGIES[strategy].fixed.keys()
    assert known["strategy"] == strategy
    assert known["about"] == STRATEGIES[strategy].summary
    assert known["warns_below"] == DOUBTFUL


def test_plain_generation_has_sampling_alone_and_examples_of_its_own(ask):
    ((_, model),) = ask(("/v1/models/tiny",))
    known = model["tts"]
    assert known["strategy"] is None
    names = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]
    assert list(known["sampling"]) == names
    assert known["sampling"]["temperature"]["default"] == 1.0
    assert known["parameters"] == {}
    assert not any(text.startswith("Compute") for text in known["examples"])  # the demo pair's


def test_a_default_of_the_deployment_is_the_default(ask, tiny_deployment):
    defaults = {"n": 8, "beam_width": 2}
    deployment = tiny_deployment.model_copy(update={"strategies": {"beam-search": defaults}})
    ((_, model),) = ask(("/v1/models/tiny:beam-search",), deployment=deployment)
    parameters = model["tts"]["parameters"]
    assert {name: parameters[name]["default"] for name in defaults} == defaults
