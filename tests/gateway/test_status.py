"""Whether a gateway says that it is ready: by what its engines have really answered."""

import asyncio
from types import SimpleNamespace

import pytest

from tts.base.errors import EndpointUnavailable
from tts.gateway.draining import Drain
from tts.gateway.openai.errors import ApiError
from tts.gateway.status import Readiness


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
