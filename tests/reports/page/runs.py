"""Small run folders, written by hand."""

import json

from tests.runs.logs import log_bytes

from tts.runs.checks import write_summary
from tts.runs.config import RunConfig
from tts.runs.events import (
    VERSION,
    Finished,
    LoggedAnswer,
    LoggedCompletion,
    LoggedThought,
    ProblemSolved,
    ProblemStarted,
    SessionBegan,
    StepGenerated,
    StepScored,
)
from tts.runs.summary import summarise
from tts.search import Stop

RULES = ("best", "weighted", "majority")
HOSTILE = "</script><img src=x onerror=alert(1)><b>&amp; ' \" <!-- \u2028 ]]> `${1}`"


def write_run(folder, *, problems=1, step="## Step 1\n\n", question=None, answer="4", seed=0):
    """A run of `problems` problems: the first is wrong, the others right; beams of two steps."""
    folder.mkdir(parents=True)
    names = [f"p{number}" for number in range(problems)]
    config = {
        "deployment": "demo",
        "deployment_source": "demo",
        "deployment_digest": "d",
        "limit": problems,
        "dataset": "demo",
        "seed": seed,
        "strategy": "beam-search",
        "vote": "best",
        "parameters": {"n": 2},
        "schedule": "decoupled",
        "prompting": {},
        "context": None,
        "speculation": "auto",
        "in_flight": None,
        "problem_ids": names,
    }
    (folder / "run.json").write_text(json.dumps(config))
    time, made_with = "2026-01-01T00:00:00+00:00", {"tts": "1.2.3"}
    began = SessionBegan(t=0.0, time=time, version=VERSION, made_with=made_with)
    events = [began]
    for number, name in enumerate(names):
        events += _problem(name, 10.0 * number, step, question, answer, right=number > 0)
    events.append(Finished(t=10.0 * problems))
    (folder / "events.jsonl").write_bytes(log_bytes(*events))
    write_summary(folder, summarise(RunConfig(**config), events).to_json())
    return folder


def _problem(name, began, step, question, answer, *, right):
    yield ProblemStarted(t=began, problem=name, question=question or f"What is {name}?")
    for node, text, stop, at in (
        ((0,), step, Stop.STEP, 1.0),
        ((1,), "a poor step\n\n", Stop.STEP, 1.5),
        ((0, 0), "the end", Stop.END, 3.0),
        ((0, 1), "another end", Stop.END, 3.5),
    ):
        yield StepGenerated(
            t=began + at,
            problem=name,
            sent=began + at - 0.5,
            done=began + at,
            prompt_tokens=9,
            in_flight=(1, 0),
            node=node,
            kind="main",
            tokens=3,
            thoughts=(LoggedThought((1, 2, 3), text, stop),),
        )
        yield StepScored(
            t=began + at + 0.25,
            problem=name,
            node=node,
            score=0.9 if node[0] == 0 else 0.1,
            cached=node == (0, 1),
            sent=began + at,
            done=began + at + 0.25,
        )
    yield ProblemSolved(
        t=began + 5.0,
        problem=name,
        answers=dict.fromkeys(RULES, answer),
        correct=dict.fromkeys(RULES, right),
        any_correct=right,
        tree_digest="",
        level=3,
        reference="5",
        completions=(LoggedCompletion((0, 0), 0.9, 0), LoggedCompletion((0, 1), 0.9, -1)),
        groups=(LoggedAnswer(answer, right),),
    )
