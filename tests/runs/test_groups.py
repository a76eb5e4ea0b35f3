"""The runs in a folder at a glance: what each is, and that a damaged one is a row that says so."""

import json
import os
import shutil
import socket

import pytest
from tests.golden.folders import unpacked
from typer.testing import CliRunner

from tts.base.errors import RunError
from tts.cli import app
from tts.runs import groups
from tts.runs.folder import CONFIG, EVENTS, GROUP, LOCK, SUMMARY
from tts.runs.groups import list_runs


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    where = tmp_path_factory.mktemp("runs")
    for name in ("decoupled", "interrupted", "torn", "lockstep-interrupted", "group", "study"):
        unpacked(name, where)
    (where / "notes").mkdir()
    (where / "file.txt").write_text("")
    return where


@pytest.fixture
def run(kept, tmp_path):
    """A finished run that may be spoilt."""
    return shutil.copytree(kept / "decoupled", tmp_path / "runs" / "it")


def by_name(folder):
    return {run.name: run for run in list_runs(folder)}


def damage_of(run):
    (row,) = list_runs(run.parent)
    assert (row.state, row.accuracy, row.name) == ("damaged", None, "it")
    return row.damage


def test_a_finished_run_is_its_summary(kept):
    row = by_name(kept)["decoupled"]
    summary = json.loads((kept / "decoupled" / SUMMARY).read_text())
    assert row.state == "finished"
    assert (row.accuracy, row.problems_done) == (summary["accuracy"], summary["problems"])
    assert row.problems == row.problems_done
    assert (row.strategy, row.n, row.deployment) == (summary["strategy"], summary["n"], "demo")
    session = json.loads((kept / "decoupled" / EVENTS).read_text().splitlines()[0])
    assert row.began == session["time"][:19] + "+00:00"


@pytest.mark.parametrize("name", ["interrupted", "torn", "lockstep-interrupted"])
def test_an_unfinished_run_counts_what_it_has_solved(kept, name):
    row = by_name(kept)[name]
    log = (kept / name / EVENTS).read_text()
    assert (row.state, row.accuracy) == ("interrupted", None)
    assert row.problems_done == log.count("problem_solved")
    assert 0 < row.problems_done < row.problems


def test_only_runs_are_listed_those_of_comparisons_by_both_names_and_the_newest_first(kept):
    rows = list_runs(kept)
    names = {row.name for row in rows}
    members = {name for name in names if name.startswith("group/")}
    assert names - members == {"decoupled", "interrupted", "torn", "lockstep-interrupted"}
    assert {row.strategy for row in rows if row.name in members} >= {"greedy", "mcts"}
    assert [row.began for row in rows] == sorted((row.began for row in rows), reverse=True)
    assert {row.name for row in list_runs(kept / "group")} == members
    assert [row.name for row in list_runs(kept / "torn")] == ["torn"]


def test_no_log_is_read_whole_of_what_has_finished(kept, monkeypatch):
    monkeypatch.setattr(groups, "solved", lambda folder: pytest.fail(f"{folder} was read"))
    assert by_name(kept / "group")


def test_a_run_that_a_process_works_on_goes_on(run):
    (run / SUMMARY).unlink()
    (run / LOCK).write_text(f"process {os.getpid()} on {socket.gethostname()}")
    assert list_runs(run.parent)[0].state == "running"
    (run / EVENTS).unlink()
    (row,) = list_runs(run.parent)
    assert (row.state, row.problems_done) == ("running", 0)
    assert row.began is not None


@pytest.mark.parametrize("name", [CONFIG, SUMMARY])
@pytest.mark.parametrize("text", ["", "{", "[]", '{"strategy": "beam-search"}', "\0"])
def test_a_file_that_is_damaged_is_named(run, name, text):
    (run / name).write_text(text)
    assert name in damage_of(run)


def test_what_is_gone_or_of_another_length_and_a_damaged_group_are_named(run):
    with (run / EVENTS).open("a") as log:
        log.write("x")
    assert f"{SUMMARY} does not fit the run's log" in damage_of(run)
    (run / EVENTS).unlink()
    assert f"{EVENTS} is missing" in damage_of(run)
    (run / CONFIG).unlink()
    assert CONFIG in damage_of(run)
    (run / GROUP).write_text("{")
    assert GROUP in damage_of(run)


def test_a_comparison_that_has_begun_no_run_is_a_row(kept, tmp_path):
    (tmp_path / "all").mkdir()
    shutil.copy(kept / "group" / GROUP, tmp_path / "all")
    (row,) = list_runs(tmp_path)
    assert (row.name, row.state, row.problems) == ("all", "interrupted", None)


def test_the_command_prints_a_table_or_says_that_there_is_nothing(run, tmp_path, monkeypatch):
    def tts(*words):
        return CliRunner().invoke(app, ["runs", "list", *map(str, words)])

    (run.parent / "bad").mkdir()
    (run.parent / "bad" / CONFIG).write_text("{")
    shown = tts(run.parent)
    assert shown.exit_code == 0
    assert "finished" in shown.stdout
    assert "bad: " in shown.stdout
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    assert "There are no runs" in tts().stderr
    assert isinstance(tts(tmp_path / "nowhere").exception, RunError)
