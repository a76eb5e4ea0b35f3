"""Which page a folder gets, and what `tts report` says of it."""

import os

import pytest
from tests.reports.page.runs import write_run
from typer.testing import CliRunner

from tts.base.errors import RunError
from tts.cli import app
from tts.reports.figures.run import by_text
from tts.reports.page.of_runs import facts_of, report_of
from tts.runs.checks import write_summary
from tts.runs.config import RunConfig
from tts.runs.folder import CONFIG, SUMMARY, read_config, read_json, write_json
from tts.runs.groups import GroupConfig, Member, create_group
from tts.runs.rows import summary_of
from tts.runs.run import Run


@pytest.fixture
def runs(tmp_path):
    return [write_run(tmp_path / name, problems=3, seed=seed) for seed, name in enumerate("ab")]


def tts(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_run_has_a_page_in_its_folder(runs):
    report = report_of(runs[:1])
    assert report.file == runs[0] / "report.html"
    assert report.title == "beam-search on demo"
    assert report.lead == "3 problems of demo, 66.7% [20.8, 93.9] right, in a."
    assert "accuracy-by-rule" in [figure.name for figure in report.figures]


def test_several_runs_have_one_that_names_them_beside_the_first_folder(runs):
    report = report_of(runs)
    assert report.file == runs[0].parent / "report-a-b.html"
    assert report.title == "a and b: beam-search on demo"
    assert report.lead == "2 runs from the folders a and b."
    write_summary(runs[1], {**summary_of(Run.load(runs[1])).to_json(), "unended": 99})
    assert ". Warning of b: 99 of 6 completions did not end" in report_of(runs).lead
    assert report.runs == runs
    names = [figure.name for figure in report.figures]
    assert names[:4] == ["results", "accuracy-by-level", "accuracy-by-rule", "settings"]
    assert "accuracy-differences" in names
    assert report.write().read_text().startswith("<!doctype html>")


def test_a_warning_of_many_runs_stands_once():
    lines = [*((f"run {place}", "no answer is right.") for place in range(8)), ("run 8", "weak.")]
    assert list(by_text(lines, 9)) == [("8 of 9 runs", "no answer is right."), ("run 8", "weak.")]


def group_of(runs, *names):
    """Make the folder of the runs a group of runs with these names."""
    config = read_config(runs[0])
    members = [Member(name, {"beam-search": "best"}, {"n": 2}) for name in names]
    create_group(runs[0].parent, GroupConfig(RunConfig(**config), members).to_json())
    return runs[0].parent


def test_a_group_has_a_page_with_the_trees_of_all_its_runs(tmp_path):
    members = [write_run(tmp_path / name) for name in ("a", "b")]
    report = report_of([group_of(members, "a", "b")])
    assert (report.file, report.runs) == (tmp_path / "report.html", members)
    assert report.write().exists()


def test_beside_a_group_that_has_begun_nothing_a_run_is_compared_with_nothing(runs):
    report = report_of([runs[0], group_of(runs, "x")])
    assert report.runs == runs[:1]
    assert "accuracy-differences" not in [figure.name for figure in report.figures]


def test_the_command_prints_tables_writes_the_page_and_opens_it(runs, monkeypatch):
    launched = []
    monkeypatch.setattr("webbrowser.open", lambda url: launched.append(url) or True)
    done = tts("report", runs[0])
    assert done.exit_code == 0
    assert "66.7%" in done.stdout
    assert f"page: {runs[0] / 'report.html'}" in done.stderr.replace("\n", "")
    assert launched == []
    assert tts("report", runs[0], "--open").exit_code == 0
    assert launched == [(runs[0] / "report.html").as_uri()]


def test_the_page_is_written_before_the_tables_which_nobody_may_read(runs, monkeypatch):
    def refuse(found):
        raise BrokenPipeError

    monkeypatch.setattr("tts.cli.report.print_report", refuse)
    tts("report", runs[0])
    assert (runs[0] / "report.html").exists()


def test_figures_go_to_a_folder_beside_the_page(runs):
    pytest.importorskip("vl_convert")
    done = tts("report", runs[0], "--format", "svg")
    assert done.exit_code == 0
    assert (runs[0] / "figures" / "accuracy-by-rule.svg").exists()


def test_a_folder_that_cannot_be_written_has_its_tables_and_a_sentence(runs, monkeypatch):
    def refuse(file, text):
        raise PermissionError(13, os.strerror(13), str(file))

    monkeypatch.setattr("tts.reports.page.page.write_whole", refuse)
    done = tts("report", runs[0])
    assert done.exit_code == 0
    assert "66.7%" in done.stdout
    assert "cannot be written: Permission denied" in done.stderr.replace("\n", " ")
    assert isinstance(tts("report", runs[0], "--open").exception, RunError)


def test_the_page_has_the_command_line_that_asked_for_the_run(runs):
    config = read_config(runs[0])
    write_json(runs[0] / CONFIG, {**config, "command": ["tts", "bench", "a b"]})
    write_summary(runs[0], read_json(runs[0] / SUMMARY, ""))
    assert facts_of(runs[:1])["Configuration"]["command line"] == "tts bench 'a b'"
    assert "command line" not in facts_of(runs[1:])["Configuration"]
