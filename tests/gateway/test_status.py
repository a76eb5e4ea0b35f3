"""What a gateway says of itself: whether it is ready, and what its models can set."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.gateway.in_process import CHAT, post, run

from tts.base.errors import EndpointUnavailable
from tts.gateway.draining import Drain
from tts.gateway.openai.errors import ApiError
from tts.gateway.status import Readiness
from tts.session.outcome import DOUBTFUL
from tts.strategies.catalog import STRATEGIES


class Answers:
    """A session whose engines answer or do not, and a client that asks whether they do."""

    def __init__(self):
        self.asked, self.failure, self.works = 0, None, True
        self.replicas = SimpleNamespace(some_work=lambda: self.works)
        deployment = SimpleNamespace(name="demo")
        self.service = SimpleNamespace(session=self, drain=Drain(), deployment=deployment)
        self.service.services = [self.service]
        self.exchange = self
        self.ready = Readiness()

    async def generate(self, *_, **__):
        self.asked += 1
        if self.failure:
            raise self.failure

    async def score(self, *_):
        pass

    async def respond(self, body):
        self.body = body

    def probed(self):
        """The status that a probe is answered with."""
        try:
            asyncio.run(self.ready(self))
        except ApiError as error:
            return error.status
        return 200


def test_an_answer_of_the_engines_counts_for_a_while():
    answers = Answers()
    assert [answers.probed() for _ in range(3)] == [200] * 3
    assert answers.asked == 1


@pytest.mark.parametrize("failure", [EndpointUnavailable("gone"), TimeoutError()])
def test_engines_that_do_not_answer_are_not_ready(failure):
    answers = Answers()
    answers.failure = failure
    assert [answers.probed() for _ in range(2)] == [503] * 2
    assert answers.asked == 2


@pytest.mark.parametrize("why", ["no server works", "it drains"])
def test_what_cannot_answer_is_not_ready_and_asks_nobody(why):
    answers = Answers()
    assert answers.probed() == 200
    if why == "it drains":
        answers.service.drain.open()
        assert answers.service.drain.begin()
    else:
        answers.works = False
    assert (answers.probed(), answers.asked) == (503, 1)


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
