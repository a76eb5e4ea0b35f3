"""The table of a run's answers: from the log alone, in the run's order."""

import csv
import io
import json
from dataclasses import replace

import pytest
from tests.cli.runner import tts
from tests.runs.recorded import RECORDED

from tts.runs.answers import Answer, answers_of, as_table
from tts.runs.run import Run


@pytest.fixture(scope="module")
def run():
    return Run.load(RECORDED)


def test_a_row_says_what_the_problems_record_says(run):
    answers = answers_of(run)
    assert [each.id for each in answers] == [
        name for name in run.config.problem_ids if name in {each.id for each in run.problems}
    ]
    rows = {each.id: each for each in answers}
    for problem in run.problems:
        row = rows[problem.id]
        assert (row.question, row.answer, row.correct) == (
            problem.question,
            problem.answer,
            problem.correct,
        )
        best = next((d for d in problem.completions if d.answer == problem.answer), None)
        assert row.score == (best and best.answer and pytest.approx(best.score))


ODD = Answer(
    id="a",
    question='say "x",\ny\rz',
    answer=None,
    score=None,
    probability=None,
    correct=False,
    tokens=3,
    seconds=0.5,
)


def test_both_tables_hold_every_text():
    (line,) = as_table([ODD], "jsonl").splitlines()
    (row,) = csv.DictReader(io.StringIO(as_table([ODD], "csv"), newline=""))
    assert json.loads(line)["question"] == row["question"] == ODD.question
    assert (row["answer"], row["correct"], row["tokens"]) == ("", "false", "3")


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        *((text, f"'{text}") for text in ("=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", "-1-2")),
        *((text, f"'{text}") for text in ("\t=1", "\x1b[2J", r"-\frac{1}{2}", "+x")),
        *((text, text) for text in ("-5", "+1,000.5", "-", "x = 1", "", "+0.0 [-15.4, +15.4]")),
    ],
)
def test_a_spreadsheet_finds_no_formula(text, cell):
    odd = replace(ODD, id=text, question=text)
    (row,) = csv.DictReader(io.StringIO(as_table([odd], "csv"), newline=""))
    assert (row["id"], row["question"]) == (cell, cell)
    assert json.loads(as_table([odd], "jsonl"))["id"] == text


def test_a_run_is_exported(run, tmp_path):
    table = as_table(answers_of(run), "csv")
    assert tts("runs", "export", RECORDED, "--to", tmp_path / "answers.csv").code == 0
    assert (tmp_path / "answers.csv").read_text() == table
    assert tts("runs", "export", RECORDED, "--format", "csv").out == table


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["runs", "export", "nowhere"], "There is no folder nowhere"),
        (["runs", "export", RECORDED, "--to", "/"], "cannot be written: Is a directory"),
        (["runs", "export", RECORDED, "--to", f"{RECORDED}/events.jsonl"], "a part of the run"),
        (["runs", "trace", RECORDED, "--to", f"{RECORDED}/run.json"], "a part of the run"),
        *(
            (["runs", what, RECORDED, "--to", to], f"cannot be written: {why}")
            for what in ("export", "trace")
            for to, why in (("new/a", "No such file"), ("/dev/full", "it is not a regular file"))
        ),
        (["solve", "demo", "/"], "/ is a folder"),
        (["bench", "--resume", RECORDED, "--limit", "3"], "goes on as it was asked for"),
        (["bench", "--resume", RECORDED, "--strategy", "greedy"], "goes on as it was asked for"),
        (["solve", "demo"], "demo is a deployment: the question comes after"),
        (["solve", "demo", "nowhere.json"], "there is no file nowhere.json"),
        (["solve", "demo", "~nobody asks", "--n", "0"], "n = 0: must be at least 1"),
        (["solve", "demo", __file__], "line 1 cannot be read"),
    ],
)
def test_what_cannot_be_done_is_refused(words, told):
    ended = tts(*words)
    assert ended.code
    assert told in ended.said
