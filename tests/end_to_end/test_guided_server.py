"""Answers held to a form, end to end: on a real server, under every schedule, resumed."""

import asyncio
import json
from dataclasses import replace
from typing import get_args

import pytest
from tests.amounts import amount
from tests.constraints.languages import accepts
from tests.end_to_end.commands import carry_out, events, summary, wait_for_events

from tts.base.errors import RequestRefused
from tts.build.spec import load_deployment
from tts.constraints import answer_constraint
from tts.constraints.regex import parse_regex
from tts.constraints.regular import Automaton
from tts.constraints.schema import parse_schema
from tts.datasets.load import load_problems
from tts.endpoints.base import GenerateCall
from tts.endpoints.streaming import OutputEnds
from tts.endpoints.triton import TritonConnection
from tts.engines.wire import EBNF, Guide
from tts.grading import extract_answer
from tts.lab.bench.single_run import prepare
from tts.lab.observer import Observer
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.runs.config import RunConfig
from tts.scheduling import ScheduleName

pytestmark = pytest.mark.server

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "unit": {"enum": ["m", "km"]}},
        "required": ["value"],
    }
)
FORMS = {"answer_regex": r"\d{3}", "answer_schema": SCHEMA}
STRATEGIES = {
    "beam-search": {"answer_regex": FORMS["answer_regex"], "beam_width": 2},
    "weighted-best-of-n": {"answer_schema": SCHEMA},
}


def answers(folder):
    """The answers of the chains that have ended, where there is one."""
    texts, found = {}, []
    for event in events(folder):
        if event["event"] != "generated":
            continue
        path = (event["problem"], *event["node"])
        for thought in event["thoughts"]:
            texts[path] = texts.get(path[:-1], "") + thought["text"]
            if thought["stop"] == "end" and (answer := extract_answer(texts[path])) is not None:
                found.append(answer)
            path = (*path, 0)
    return found


def test_forms_are_kept_in_the_same_trees_under_every_schedule(in_served, tmp_path):
    problems = load_problems("demo", limit=2)
    for strategy, more in STRATEGIES.items():
        regex, schema = (more.get(name) for name in FORMS)
        node = parse_regex(regex) if regex else parse_schema(schema)
        parameters = {"n": 4, "temperature": 1.2, "max_tokens": 100, **more}
        digests = set()
        for schedule in get_args(ScheduleName)[:: amount(2, 1)]:
            wanted = RunConfig(
                deployment_source="demo",
                dataset="demo",
                limit=2,
                strategy=strategy,
                schedule=schedule,
                parameters=parameters,
            )
            folder = tmp_path / f"{strategy}-{schedule}"
            digests.add(
                carry_out(prepare(wanted, Observer(), problems=problems), folder)["tree_digest"]
            )
            found = answers(folder)
            assert len(found) >= 4
            language = Automaton.of(node)
            assert all(accepts(language, answer) for answer in found), found
        assert len(digests) == 1, strategy


@pytest.mark.slow  # its forms are kept by default; resume: test_embedded.py
def test_a_run_with_a_form_is_killed_and_continued(served, tmp_path):
    (tmp_path / "form.json").write_text(SCHEMA)
    options = ("--limit", 3, "--n", 8, "--set", f"answer_schema={tmp_path / 'form.json'}")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    served.done("bench", "demo", *options, "--out", whole)
    process = served.start("bench", "demo", *options, "--schedule", "lockstep", "--out", killed)
    wait_for_events(process, killed, "problem_solved", 1)
    process.kill()
    process.communicate()
    (tmp_path / "form.json").unlink()  # the run has kept what it says
    served.done("bench", "--resume", killed)
    assert summary(killed)["tree_digest"] == summary(whole)["tree_digest"]


def test_a_guide_that_is_no_grammar_is_refused_and_harms_no_other_request(in_served, server):
    deployment = load_deployment("demo")
    models = Models.load(deployment)
    prompt = Context.of(models, Problem("p", "Compute (37 + 58) - 20.")).generator_ids(())
    guide = answer_constraint(r"\d{4}", None, "\n\n").guide()

    async def go(address):
        async with TritonConnection(address) as connection:
            generator = connection.generator(OutputEnds(models.end_id, models.step_stop_words))
            call = GenerateCall(prompt, 200, 7, 0.8, 1.0, stop_at_step=False)
            free = await generator.generate(call)
            beside = [asyncio.ensure_future(generator.generate(call)) for _ in range(4)]
            for wrong in ("root ::= [", "root ::= root", ""):
                with pytest.raises(RequestRefused, match="guided_decoding_guide is not a grammar"):
                    await generator.generate(replace(call, guide=Guide(EBNF, wrong)))
            assert [await each for each in beside] == [free] * 4
            guided = replace(call, guide=guide)
            first, greedy = [
                await generator.generate(each)
                for each in (guided, replace(guided, temperature=0.0))
            ]
            assert first == await generator.generate(guided)
            for ids in (first, greedy):
                answer = extract_answer(models.generator.decode(ids))
                assert answer is None or (len(answer) == 4 and answer.isdigit())
            running = [asyncio.ensure_future(generator.generate(guided)) for _ in range(20)]
            await asyncio.sleep(0)
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            assert first == await generator.generate(guided)

    asyncio.run(go(server[0].addresses.grpc))
