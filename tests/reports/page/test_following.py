"""`tts report --follow`: a page that keeps up with a run until that ends."""

import json

from tests.reports.page.runs import write_run
from typer.testing import CliRunner

from tts.cli import app
from tts.reports.page import of_runs
from tts.runs.folder import EVENTS, SUMMARY, locked


def test_the_page_grows_with_the_run_and_is_whole_when_that_has_ended(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", problems=3)
    lines = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    summary = (folder / SUMMARY).read_text()
    (folder / SUMMARY).unlink()
    (folder / EVENTS).write_bytes(lines[0])
    run = locked(folder)
    run.__enter__()
    leads, opened = [], []

    def goes_on(seconds):
        assert seconds >= of_runs.EVERY_S
        text = (folder / "report.html").read_text()
        leads.append(next(s for s in ("0 of 3", "1 of 3", "3 of 3") if f"{s} problems" in text))
        count = (14, len(lines))[len(leads) - 1] if len(leads) < 3 else None
        if count:
            (folder / EVENTS).write_bytes(b"".join(lines[:count]))
        else:
            (folder / SUMMARY).write_text(summary)
            run.__exit__(None, None, None)

    monkeypatch.setattr(of_runs.time, "sleep", goes_on)
    monkeypatch.setattr("webbrowser.open", opened.append)  # which returns nothing: it has failed
    done = CliRunner().invoke(app, ["report", str(folder), "--follow", "--open", "--json"])
    assert done.exit_code == 0, done.output
    assert leads == ["0 of 3", "1 of 3", "3 of 3"]
    assert "3 problems of demo" in (folder / "report.html").read_text()
    assert opened == [(folder / "report.html").as_uri()], "once, when there is one"
    assert json.loads(done.stdout)["page"] == str(folder / "report.html")
    assert done.stderr.count("page: ") == 2, "told once while it goes on, and at the end"
    assert done.stderr.count("No browser can be opened here") == 1


def test_a_report_that_is_there_stays_until_there_is_a_newer_one(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "report.html").write_text("whole")
    with locked(folder):
        assert "Search trees" in next(of_runs.follow(folder)).read_text()


def test_a_run_that_has_not_begun_is_waited_for(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    run = locked(folder)
    run.__enter__()
    monkeypatch.setattr(of_runs.time, "sleep", lambda seconds: run.__exit__(None, None, None))
    done = CliRunner().invoke(app, ["report", str(folder), "--follow"])
    assert "No page yet: " in done.stderr
    assert done.exit_code == 1


def test_one_run_is_followed(tmp_path):
    done = CliRunner().invoke(app, ["report", str(tmp_path), str(tmp_path), "--follow"])
    assert (done.exit_code, "goes with one run" in done.stderr) == (2, True)
