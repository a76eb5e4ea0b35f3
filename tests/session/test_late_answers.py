"""Answers that do not come: what they cost a run, on virtual time."""

import asyncio

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier

from tts.build.errors import EndpointTimeout
from tts.endpoints.silence import Silence
from tts.lab.simulation.virtual_time import run_virtual
from tts.problem import Problem
from tts.runs.summary import read_summary
from tts.session import Session

PROBLEMS = [Problem(str(i), f"Compute {i} + {i}.", "4") for i in range(3)]
LIMIT_S = 100.0


class Late:
    """A generator that takes its time, and for some problems for ever."""

    def __init__(self, inner, tokenizer, late):
        self.inner, self.tokenizer = inner, tokenizer
        self.late = late
        """Texts of prompts that are not answered."""
        self.silence = Silence("The server", LIMIT_S)

    async def generate(self, call):
        prompt = self.tokenizer.decode(call.input_ids.tolist())
        async with self.silence.limited():
            await asyncio.sleep(1e6 if any(text in prompt for text in self.late) else 0.9 * LIMIT_S)
        self.silence.broken()
        return await self.inner.generate(call)


@pytest.fixture
def generator(words, tokenizer):
    return Late(ScriptedGenerator(*words), tokenizer, {"Compute 1 + 1."})


def ran(deployment, generator, folder, **options):
    """The ids of the problems that a run has solved, and the error at its end."""

    async def run():
        solved, error = [], None
        given = {"generator": generator, "verifier": ScriptedVerifier()}
        async with Session.open_async(deployment, **given) as session:
            results = session.solve_many(
                PROBLEMS, strategy="majority-vote", n=2, out=folder, **options
            )
            try:
                async for result in results:
                    solved.append(result.problem.id)
            except EndpointTimeout as late:
                error = late
        return solved, error

    return run_virtual(run())


@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_late_answer_fails_its_problem_alone_and_resume_asks_again(
    tiny_deployment, generator, tmp_path, in_flight
):
    solved, error = ran(tiny_deployment, generator, tmp_path, in_flight=in_flight)
    assert sorted(solved) == ["0", "2"]
    assert error.message == "1 problem has failed (1): The server has answered nothing for 100 s."
    assert "answer_timeout_s" in error.hint
    assert not (tmp_path / "summary.json").exists()
    generator.late.clear()
    asked = len(generator.inner.calls.generated)
    solved, error = ran(tiny_deployment, generator, tmp_path, in_flight=in_flight, resume=True)
    assert (sorted(solved), error) == (["0", "1", "2"], None)
    assert read_summary(tmp_path).problems == 3
    assert len(generator.inner.calls.generated) == asked + 2


def test_a_server_that_answers_nothing_ends_the_run(tiny_deployment, generator, tmp_path):
    generator.late = {"Compute 0", "Compute 1", "Compute 2"}
    solved, error = ran(tiny_deployment, generator, tmp_path, in_flight=1)
    assert solved == []
    assert error.message == "The server has answered nothing for 100 s."
