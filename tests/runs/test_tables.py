"""Tables of runs: answers, problems and completions, from the log alone."""

import csv
import importlib.metadata
import io
import json
import re
import sys
import tomllib
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.cli.runner import tts
from tests.golden.folders import unpacked
from tests.runs.recorded import RECORDED
from tests.runs.runs import log_of, write_run

from tts.runs.run import Run
from tts.runs.tables import (
    Answer,
    CompletionRow,
    ProblemRow,
    answers_of,
    as_table,
    completion_rows,
    problem_rows,
)


@pytest.fixture(scope="module")
def run():
    return Run.load(RECORDED)


def test_a_row_says_what_the_problems_record_says(run):
    answers = list(answers_of(run))
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
    (row,) = csv.DictReader(io.StringIO(as_table([ODD], "csv").decode(), newline=""))
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
    (row,) = csv.DictReader(io.StringIO(as_table([odd], "csv").decode(), newline=""))
    assert (row["id"], row["question"]) == (cell, cell)
    assert json.loads(as_table([odd], "jsonl"))["id"] == text


def exported(kind, file):
    """The rows of a file, with None for what is empty."""
    if kind == "jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    if kind == "parquet":
        return pytest.importorskip("pyarrow.parquet").read_table(file).to_pylist()
    rows = csv.DictReader(io.StringIO(file.read_text(), newline=""))
    return [{name: cell or None for name, cell in row.items()} for row in rows]


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    return unpacked("group", tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("words", [(), ("--completions",)])
def test_runs_are_exported_alike_as_every_kind(group, tmp_path, words):
    tables = {}
    for kind in ("jsonl", "csv", "parquet"):
        ended = tts("runs", "export", RECORDED, group, *words, "--out", tmp_path / f"all.{kind}")
        assert ended.code == 0, ended.said
        tables[kind] = exported(kind, tmp_path / f"all.{kind}")
    rows = tables["jsonl"]
    assert tables["parquet"] == rows
    assert len(tables["csv"]) == len(rows)
    assert f"{len(rows):,} {'completions' if words else 'problems'}" in ended.said
    for row, cells in zip(rows, tables["csv"], strict=True):
        assert cells["problem"] == row["problem"]
        assert (cells["correct"], cells["n"]) == (str(row["correct"]).lower(), str(row["n"]))
    stdout = tts("runs", "export", RECORDED, group, *words).out
    assert [json.loads(line) for line in stdout.splitlines()] == rows


def test_a_problem_and_its_completions_are_those_of_the_run(run):
    rows = {row.problem: row for row in problem_rows([RECORDED])}
    completions = list(completion_rows([RECORDED]))
    answers = {each.id: each for each in answers_of(run)}
    assert list(rows) == [problem.id for problem in run.problems]
    for problem in run.problems:
        row, answer = rows[problem.id], answers[problem.id]
        assert (row.reference, row.level) == (problem.reference, str(problem.level))
        assert (row.answer, row.correct, row.score) == (answer.answer, answer.correct, answer.score)
        assert (row.tokens, row.seconds) == (answer.tokens, answer.seconds)
        assert (answer.reference, answer.level) == (problem.reference, problem.level)
        mine = [each for each in completions if each.problem == problem.id]
        assert [each.text for each in mine] == [done.text for done in problem.completions]
        assert row.any_correct == any(each.correct for each in mine)
        assert [len(each.step_scores) for each in mine] == [
            len(d.steps) for d in problem.completions
        ]
    assert sum(row.compute or 0 for row in rows.values()) == pytest.approx(run.totals.compute or 0)


def test_the_guide_names_every_column():
    guide = Path(__file__).parents[2] / "docs" / "guides" / "notebooks.md"
    rows = [line.split(" | ", 1) for line in guide.read_text().splitlines() if line[:2] == "| "]
    named = {name: set(re.findall(r"`(\w+)`", columns)) for name, columns in rows}
    for kind, row in (("| of problems", ProblemRow), ("| of completions", CompletionRow)):
        assert named["| both"] | named[kind] == {field.name for field in fields(row)}


def test_strategies_that_share_a_run_have_rows_by_their_own_votes(group):
    rows = list(problem_rows([group]))
    assert {row.strategy for row in rows} >= {"best-of-n", "weighted-best-of-n"}
    shared = [row for row in rows if row.run == "best-of-n"]
    assert len({row.vote for row in shared}) == len({row.strategy for row in shared}) > 1
    assert "temperature" in json.loads(shared[0].settings)


def test_memory_does_not_grow_with_the_log(tmp_path):
    def peak(problems):
        answers = {f"p{number}": number % 2 == 0 for number in range(problems)}
        run = write_run(tmp_path / str(problems), log_of(answers, question="{} " + "?" * 2000))
        tracemalloc.start()
        try:
            held = [tracemalloc.get_traced_memory()[0] for _ in problem_rows([run])]
            assert len(held) == problems
            return max(held)
        finally:
            tracemalloc.stop()

    assert peak(400) - peak(100) < 300 * 500, "less than the text of each further question"


def test_a_pyarrow_that_cannot_be_used_has_a_hint_that_helps(tmp_path, monkeypatch):
    """Version 26 refuses NumPy 1, which the bundled Triton needs; any from 17 on had been asked."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = [f"{each}; extra == 'parquet'" for each in project["optional-dependencies"]["parquet"]]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: needed)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ended = tts("runs", "export", RECORDED, "--out", tmp_path / "a.parquet")
    assert ended.code
    assert re.search(r"pip install 'pyarrow[^']*<26'", ended.said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["runs", "export", "nowhere"], "There is no folder nowhere"),
        (["runs", "export", RECORDED, "--out", "/"], "must end with .parquet, .csv or .jsonl"),
        (["runs", "export", RECORDED, "--out", f"{RECORDED}/events.jsonl"], "a part of the run"),
        (["runs", "trace", RECORDED, "--to", f"{RECORDED}/run.json"], "a part of the run"),
        *(
            (["runs", what, RECORDED, option, to], f"cannot be written: {why}")
            for what, option, to, why in (
                ("export", "--out", "new/a.csv", "No such file"),
                ("trace", "--to", "new/a", "No such file"),
                ("trace", "--to", "/dev/full", "it is not a regular file"),
            )
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
