"""The report of a run that goes on: written anew as its log grows, served to this machine only."""

import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.reports.page.runs import write_run

from tts.build.errors import RunError
from tts.reports import live_server
from tts.reports.live_run import State
from tts.reports.live_server import EVERY_S, LivePage, serve_run, serving
from tts.runs.config import read_run_config
from tts.runs.folder import CONFIG, EVENTS, SUMMARY
from tts.runs.lock import locked
from tts.runs.log import read_events
from tts.runs.summary import summarise

MISSING = {
    "deployment_source": "demo",
    "deployment_digest": "",
    "limit": None,
    "in_flight": None,
}


@pytest.fixture
def run(tmp_path):
    """A run of three problems of which the log holds the beginning, and the lines to come."""
    folder = write_run(tmp_path / "run", problems=3)
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | MISSING))
    assert read_run_config(folder)
    (folder / SUMMARY).unlink(missing_ok=True)  # it has not finished
    lines = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    (folder / EVENTS).write_bytes(b"".join(lines[:10]))
    return folder, lines[10:]


@pytest.fixture
def pages(tmp_path):
    folder = tmp_path / "pages"
    folder.mkdir()
    return folder


def grow(folder, lines, count):
    with (folder / EVENTS).open("ab") as log:
        log.writelines(lines[:count])
    del lines[:count]


def test_a_page_is_written_when_the_log_has_grown_and_at_most_every_few_seconds(run, pages):
    folder, lines = run
    now = [0.0]
    page = LivePage(folder, pages, lambda: now[0])
    with locked(folder):
        page.look()
        assert page.number == 1
        assert "running, 0/3" in page.line
        grow(folder, lines, 3)
        page.look()
        assert page.number == 1, "too soon"
        assert "running, 1/3" in page.line
        now[0] += EVERY_S
        page.look()
        assert page.number == 2
        now[0] += EVERY_S
        page.look()
        assert page.number == 2, "nothing new"
    assert "1/3" in page.file(2, "report.html").read_text()


def test_a_page_that_takes_long_is_written_less_often(run, pages, monkeypatch):
    folder, lines = run
    now = [0.0]
    page = LivePage(folder, pages, lambda: now[0])
    real = LivePage._write

    def slow(self, run):
        now[0] += 10
        real(self, run)

    monkeypatch.setattr(LivePage, "_write", slow)
    page.look()
    grow(folder, lines, 2)
    now[0] += 39
    page.look()
    assert page.number == 1
    now[0] += 1
    page.look()
    assert page.number == 2


def test_the_last_page_is_of_the_whole_run_and_older_ones_are_removed(run, pages):
    folder, lines = run
    now = [0.0]
    page = LivePage(folder, pages, lambda: now[0])
    with locked(folder):
        while lines:
            page.look()
            grow(folder, lines, 8)
            now[0] += EVERY_S
        page.look()
    summary = summarise(read_run_config(folder, going_on=True), read_events(folder))
    (folder / SUMMARY).write_text(json.dumps(dict(summary)))
    now[0] += EVERY_S
    page.look()
    assert page.state is State.FINISHED
    assert "finished, 3/3" in page.file(page.number, "report.html").read_text()
    kept = sorted(int(each.name) for each in pages.iterdir())
    assert kept == [page.number - 1, page.number]


def test_a_damaged_log_leaves_the_page_there_was_and_says_why(run, pages):
    folder, lines = run
    now = [0.0]
    page = LivePage(folder, pages, lambda: now[0])
    page.look()
    now[0] += EVERY_S
    (folder / EVENTS).write_bytes((folder / EVENTS).read_bytes() + b"{damaged\n")
    page.look()
    assert page.number == 1
    assert "line 11 is not JSON" in page.problem
    assert "damaged lines of the log, left out: 1" in page.line
    whole = (folder / EVENTS).read_bytes().replace(b"{damaged\n", b"")
    (folder / EVENTS).write_bytes(whole)
    grow(folder, lines, 2)
    now[0] += EVERY_S
    page.look()
    assert (page.number, page.problem) == (2, None)


def test_a_run_that_has_not_begun_has_no_page_yet(tmp_path, pages):
    with pytest.raises(RunError, match="holds no run"):
        LivePage(tmp_path / "nowhere", pages)
    with locked(tmp_path / "new"):
        page = LivePage(tmp_path / "new", pages)
        page.look()
    assert (page.number, page.problem) == (0, None)


def get(address, path, host=None, method="GET"):
    where = urlsplit(address).netloc
    connection = http.client.HTTPConnection(where, timeout=30)
    try:
        connection.request(method, path, headers={"Host": host or where})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def test_frame_state_and_pages_are_served_and_nothing_else(run, pages):
    folder, _ = run
    page = LivePage(folder, pages)
    page.look()
    (page.file(1, "report-files")).mkdir()
    page.file(1, "report-files/001.js").write_text("ttsReport.addTrees({});")
    with serving(page) as address:
        assert address.startswith("http://127.0.0.1:")
        status, frame, headers = get(address, "/")
        assert (status, "/watch.js" in frame) == (200, True)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        for path, kind in (("/watch.js", "text/javascript"), ("/watch.css", "text/css")):
            status, _, headers = get(address, path)
            assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert json.loads(get(address, "/state")[1])["page"] == 1
        status, report, headers = get(address, "/1/report.html?again")
        assert (status, "<title>run: interrupted</title>" in report) == (200, True)
        assert headers["Cache-Control"] == "no-store"
        assert get(address, "/1/report-files/001.js")[:2] == (200, "ttsReport.addTrees({});")
        for path in (
            "/2/report.html",
            "/1/report-files/../report.html",
            "/1/../../../etc/passwd",
            "/1/report-files/%2e%2e/report.html",
            f"/{'9' * 5000}/report.html",
            "/live_server.py",
            "/1/report-files/001.js/",
        ):
            assert get(address, path)[0] == 404, path
        assert get(address, "/state", method="POST")[0] == 501


def test_a_name_that_is_not_this_machines_is_refused(run, pages):
    page = LivePage(run[0], pages)
    with serving(page) as address:
        port = urlsplit(address).port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
            assert get(address, "/state", host)[0] == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}"):
            status, text, _ = get(address, "/state", host)
            assert (status, "its own machine only" in text) == (403, True), host


def test_watching_says_where_and_how_far_until_ctrl_c_and_leaves_nothing(run, monkeypatch):
    folder, _ = run
    said, looked = [], []

    def tick(seconds):
        if looked:
            raise KeyboardInterrupt
        looked.append(get(said[0].split(": ")[1].split(" ")[0], "/1/report.html")[0])

    monkeypatch.setattr(live_server.time, "sleep", tick)
    made = []
    real = live_server.tempfile.TemporaryDirectory

    def temporary(**options):
        made.append(real(**options))
        return made[-1]

    monkeypatch.setattr(live_server.tempfile, "TemporaryDirectory", temporary)
    before = sorted(folder.iterdir())
    serve_run(folder, said.append)
    assert looked == [200]
    assert len(said) == 2
    assert said[1].startswith(f"{folder}: interrupted, 0/3")
    assert sorted(folder.iterdir()) == before
    assert not Path(made[0].name).exists()
