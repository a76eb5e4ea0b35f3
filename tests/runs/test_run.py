"""A run's folder read for programs: records of problems and requests, and data frames."""

import json
import re
import sys
import types
from pathlib import Path

import pytest
from tests.runs.logs import expansion, scoring, solved, started, texts
from tests.runs.recorded import RECORDED
from tests.runs.runs import CONFIG

from tts.base.errors import RunError, TtsError
from tts.runs.checks import write_summary
from tts.runs.config import RunConfig
from tts.runs.events import LoggedAnswer, LoggedCompletion, StepGenerated
from tts.runs.folder import create_run
from tts.runs.groups import GroupConfig, Member, create_group
from tts.runs.log import RunLog, read_events
from tts.runs.records import CompletionRecord
from tts.runs.run import Run
from tts.runs.summary import summarise


def make_run(folder, *events, config=None):
    create_run(folder, config or CONFIG | {"vote": "weighted"})
    with RunLog(folder) as log:
        for event in events:
            log.write(event)
    return folder


TREE = [
    started("a", 0.25, question="2 + 2?"),
    expansion((0,), 0.5, 1.0, thoughts=texts("One.\n\n", length=3)),
    scoring((0,), 0.5, 1.0, score=0.5, cached=True),
    expansion((0, 1), 0.5, 1.0, thoughts=texts("Two.\n\n", r"\boxed{4}", length=4)),
    scoring((0, 1), 0.5, 1.0, score=0.75, cached=True),
    expansion((1,), 0.5, 1.0, thoughts=texts("Never used.", length=2)),
    solved(
        "a",
        2.0,
        reference="4",
        level=3,
        answers={"best": "5", "weighted": "4", "majority": None},
        correct={"best": False, "weighted": True},
        completions=(
            LoggedCompletion((0, 1, 0), 0.75, 0),
            LoggedCompletion((1, 0), None, -1),
        ),
        groups=(LoggedAnswer("4", True),),
    ),
]


def test_a_solved_problem_has_its_completions_step_by_step(tmp_path):
    (problem,) = Run.load(make_run(tmp_path, *TREE)).problems
    assert problem.completions == (
        CompletionRecord(
            text="One.\n\nTwo.\n\n" + r"\boxed{4}",
            steps=("One.", "Two.", r"\boxed{4}"),
            step_scores=(0.5, 0.75, None),
            score=0.75,
            answer="4",
            node=(0, 1, 0),
        ),
        # its second thought was not written: the first had filled the context
        CompletionRecord("Never used.", ("Never used.", ""), (None, None), None, None, (1, 0)),
    )
    assert (problem.id, problem.question, problem.level) == ("a", "2 + 2?", 3)
    assert (problem.reference, problem.answer, problem.correct) == ("4", "4", True)
    assert problem.answers == {"best": "5", "weighted": "4", "majority": None}
    assert (problem.tokens, problem.seconds, problem.tree_digest) == (13, 1.75, "d")


def test_without_a_reference_nothing_is_right_or_wrong(tmp_path):
    (problem,) = Run.load(make_run(tmp_path, solved("a", 1.0))).problems
    assert (problem.correct, problem.reference, problem.seconds) == (None, None, None)


def test_an_unfinished_run_has_no_summary_and_the_problems_that_are_solved(tmp_path):
    open_problem = started("open", 1.0), expansion((0,), 1.0, 2.0, problem="open")
    run = Run.load(str(make_run(tmp_path, *TREE, *open_problem)))
    assert run.summary is None
    assert [problem.id for problem in run.problems] == ["a"]
    assert [request.problem for request in run.requests] == ["a", "a", "a", "open"]
    assert (run.measures["problems"], run.measures["accuracy"]) == (1, 1.0)
    assert run.measures["gpu_energy"] is None
    summary = summarise(run.config, run.totals)
    write_summary(tmp_path, summary.to_json())
    kept = Run.load(tmp_path).summary
    assert kept == summary
    assert kept.problems == 1


def test_a_recorded_run_is_read_whole():
    run = Run.load(RECORDED)
    assert len(run.problems) == run.summary.problems
    right = [problem.correct for problem in run.problems]
    assert sum(right) / len(right) == pytest.approx(run.summary.accuracy, abs=1e-4)
    assert sum(problem.tokens for problem in run.problems) == run.summary.generated_tokens
    answered = [request for request in run.requests if request.cancelled is None]
    kinds = [(request.engine, request.kind == "prefetch") for request in answered]
    assert kinds.count(("generator", False)) == run.summary.generator_calls
    assert kinds.count(("verifier", False)) == run.summary.verifier_calls
    texts = {
        thought.text
        for event in read_events(RECORDED)
        if isinstance(event, StepGenerated)
        for thought in event.thoughts
    }
    for problem in run.problems:
        assert len(problem.completions) == run.config.parameters["n"]
        for done in problem.completions:
            assert len(done.steps) == len(done.step_scores) == len(done.node)
            assert set(done.steps) <= {text.strip() for text in texts}
            assert done.score == done.step_scores[-1]  # the run's aggregation is `last`


def test_what_is_no_single_run_is_refused_by_name(tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        Run.load(tmp_path)
    members = [Member("beam-search", {"beam-search": "weighted"}, {})]
    create_group(tmp_path, GroupConfig(RunConfig(), members).to_json())
    with pytest.raises(RunError, match=r"holds several runs.\n.*one of them: beam-search"):
        Run.load(tmp_path)


def stand_in(monkeypatch, name):
    """A library whose data frame is what it was made from."""
    monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(DataFrame=lambda data: data))


def test_data_frames_of_what_is_installed_have_a_row_for_each_record(tmp_path, monkeypatch):
    run = Run.load(make_run(tmp_path, *TREE))
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    for library, said in ((None, "no pandas or polars here"), ("polars", "no polars here")):
        with pytest.raises(TtsError, match=said):
            run.to_frames(library)
    stand_in(monkeypatch, "polars")
    problems, requests = run.to_frames()
    with pytest.raises(TtsError, match="no pandas here"):
        run.to_frames("pandas")
    assert {name: column[0] for name, column in problems.items()} == {
        "id": "a",
        "question": "2 + 2?",
        "level": "3",
        "reference": "4",
        "answer": "4",
        "answer_best": "5",
        "answer_weighted": "4",
        "answer_majority": None,
        "correct": True,
        "completions": 2,
        "limit": None,
        "tokens": 13,
        "seconds": 1.75,
        "tree_digest": "d",
    }
    assert {len(column) for column in requests.values()} == {3}
    assert requests["node"] == ["0", "0.1", "1"]
    assert requests["tokens"] == [3, 8, 2]
    assert requests["generator_in_flight"] == [1, 1, 1]
    json.dumps([problems, requests])  # plain data throughout


def test_the_examples_of_the_page_run():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "run-log.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = {}
    for example in examples:
        exec(example.replace("runs/mine", str(RECORDED)), names)
    assert names["tokens"] == Run.load(RECORDED).summary.generated_tokens
