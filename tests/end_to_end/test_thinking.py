"""The bundled generator that thinks, on embedded engines: budgets, steps, cuts and resumed runs."""

import json
import shutil

import pytest
from tests.end_to_end.commands import grown_under_every_schedule, quiet

from tts.build.spec import load_deployment
from tts.datasets.load import load_problems
from tts.problem import Problem
from tts.runs.run import Run
from tts.session import Session


@pytest.fixture(scope="module")
def thinking(new_home):
    """The deployment, in a home of its own."""
    with quiet(new_home("demo-thinking")) as tts, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(tts.home))
        yield load_deployment("demo-thinking")


@pytest.fixture(scope="module")
def session(thinking):
    """Its engines, opened once."""
    with Session.open(thinking.name, server="embedded") as session:
        yield session


@pytest.mark.parametrize(
    "parameters",
    [
        {"n": 4, "beam_width": 2, "num_iterations": 3, "thinking_budget": 24},
        pytest.param({"n": 4, "beam_width": 2}, marks=pytest.mark.slow),
    ],
)
def test_every_schedule_grows_the_same_trees(thinking, tmp_path, parameters):
    problems = load_problems("demo", limit=2)
    digests, _ = grown_under_every_schedule(thinking.name, problems, parameters, tmp_path)
    assert len(digests) == 1


def test_a_budget_decides_how_long_it_thinks_and_answers_are_apart(session):
    problems = load_problems("demo", limit=4)
    for budget in (3, 200):
        results = session.solve_many(
            problems, strategy="majority-vote", n=2, thinking_budget=budget
        )
        for result in results:
            for done in result.completions:
                assert "<think>" not in done.text
                assert done.text.startswith("## Step 1")
                assert done.thinking.endswith("</think>\n\n")
                tokens = result.tree[done.node[:1]].thought.token_ids
                assert len(tokens) <= budget
            if budget == 3:
                assert result.usage.thinking_tokens == 2 * 3
                assert {done.thinking for done in result.completions} == {"\n</think>\n\n"}
    off = Problem("off", problems[0].question, chat_template_kwargs={"enable_thinking": False})
    result = session.solve(off, strategy="majority-vote", n=2)
    assert result.usage.thinking_tokens == 0
    assert all(not done.thinking for done in result.completions)


def test_a_run_that_is_continued_has_the_tree_of_one_that_was_not(thinking, session, tmp_path):
    problems = load_problems("demo", limit=4)
    asked = {"strategy": "confidence-vote", "n": 6, "window": 12, "warm_up": 2}
    list(session.solve_many(problems, **asked, out=tmp_path / "whole"))
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    whole = Run.load(tmp_path / "whole").summary
    log = tmp_path / "cut" / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[: len(lines) // 2]))
    (tmp_path / "cut" / "summary.json").unlink()
    with Session.open(thinking.name, server="embedded") as other:
        list(other.solve_many(problems, **asked, out=tmp_path / "cut", resume=True))
    assert Run.load(tmp_path / "cut").summary.tree_digest == whole.tree_digest
    assert whole.thinking.tokens > 0
    stops = [
        thought["stop"]
        for line in (tmp_path / "whole" / "events.jsonl").read_text().splitlines()
        for thought in json.loads(line).get("thoughts", ())
    ]
    assert "cut" in stops
