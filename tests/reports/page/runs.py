"""Small run folders, written by hand."""

from msgspec.structs import replace
from tests.runs import runs
from tests.runs.logs import SESSION, expansion, scoring, solved, started, texts

from tts.runs.checks import write_summary
from tts.runs.config import RunConfig
from tts.runs.events import LoggedAnswer, LoggedCompletion
from tts.runs.measures import Measures
from tts.runs.summary import summarise

RULES = ("best", "weighted", "majority")
HOSTILE = "</script><img src=x onerror=alert(1)><b>&amp; ' \" <!-- \u2028 ]]> `${1}`"


def write_run(folder, *, problems=1, step="## Step 1\n\n", question=None, answer="4", seed=0):
    """A run of `problems` problems: the first is wrong, the others right; beams of two steps."""
    names = [f"p{number}" for number in range(problems)]
    own = {"limit": problems, "seed": seed, "strategy": "beam-search", "parameters": {"n": 2}}
    config = runs.CONFIG | own | {"problem_ids": names}
    events = [replace(SESSION, made_with={"tts": "1.2.3"})]
    for number, name in enumerate(names):
        events += _problem(name, 10.0 * number, step, question, answer, right=number > 0)
    runs.write_run(folder, events, **config)
    write_summary(
        folder, summarise(RunConfig(**config), Measures.of(events, RunConfig(**config))).to_json()
    )
    return folder


def _problem(name, began, step, question, answer, *, right):
    yield started(name, began, question or f"What is {name}?")
    for node, text, stop, at in (
        ((0,), step, "step", 1.0),
        ((1,), "a poor step\n\n", "step", 1.5),
        ((0, 0), "the end", "end", 3.0),
        ((0, 1), "another end", "end", 3.5),
    ):
        now, thoughts = began + at, texts(text, stop=stop, length=3)
        yield expansion(node, now - 0.5, now, problem=name, thoughts=thoughts)
        score = 0.1 if node == (1,) else 0.9
        again = node == (0, 1)
        yield scoring(node, now, now + 0.25, problem=name, score=score, cached=again)
    yield solved(
        name,
        began + 5.0,
        answers=dict.fromkeys(RULES, answer),
        correct=dict.fromkeys(RULES, right),
        any_correct=right,
        level=3,
        reference="5",
        completions=(LoggedCompletion((0, 0), 0.9, 0), LoggedCompletion((0, 1), 0.9, -1)),
        groups=(LoggedAnswer(answer, right),),
    )
