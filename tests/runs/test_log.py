"""The log survives kills; its one reader refuses by name what it cannot read."""

import os
import platform
from pathlib import Path

import pytest
from tests.runs.logs import log_bytes, started, used

from tts.base.errors import RunError
from tts.runs import log as module
from tts.runs.events import VERSION, ProblemStarted, SessionBegan, Used, encode
from tts.runs.files import open_file
from tts.runs.folder import CONFIG, EVENTS, create_run
from tts.runs.log import RunLog, read_events, surroundings


def test_events_come_back_as_written(tmp_path):
    create_run(tmp_path / "run", {})
    written = [started("héllo \ud800", 7.0, "2 + 2?"), used([0, 1], 0.25)]
    with RunLog(tmp_path / "run", (4, 40)) as log:
        for event in written:
            log.write(event)
    session, *events = read_events(tmp_path / "run")
    assert isinstance(session, SessionBegan)
    assert (session.version, session.limits) == (VERSION, (4, 40))
    assert session.files.keys() == {CONFIG}
    assert session.made_with == surroundings()
    assert session.made_with["python"] == platform.python_version()
    assert set(session.made_with) == {"tts", "python", "system", "processors"}
    assert events == written
    assert list(read_events(tmp_path)) == [], "there is no log"


def test_times_are_seconds_since_the_session_began(tmp_path, monkeypatch):
    now = 7000.0
    monkeypatch.setattr("tts.runs.log.time.monotonic", lambda: now)
    create_run(tmp_path, {})
    with RunLog(tmp_path) as log:
        assert log.clock() == 0
        now = 7002.5000014
        assert log.clock() == 2.500001, "whole microseconds"


def test_a_process_that_is_killed_loses_no_more_than_the_last_fifth_of_a_second(
    tmp_path, monkeypatch
):
    now = [7000.0]
    monkeypatch.setattr("tts.runs.log.time.monotonic", lambda: now[0])
    create_run(tmp_path, {})

    def on_disk():
        return [event.problem for event in read_events(tmp_path) if event.t]

    with RunLog(tmp_path) as log:
        log.flush()
        for now[0], problem in ((7000.1, "a"), (7000.3, "b"), (7000.4, "c"), (7000.6, "d")):
            log.write(started(problem, log.clock()))
            if problem == "c":
                assert on_disk() == ["a", "b"]
        assert on_disk() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("cut", range(1, 30, 4))
def test_a_line_cut_short_by_a_kill_is_dropped_and_the_log_goes_on(tmp_path, cut):
    create_run(tmp_path, {})
    kept = started("kept", 1.0, "x" * 5000)
    with RunLog(tmp_path) as log:
        log.write(kept)
        log.write(started("lost", 2.0, "y" * 40))
    file = tmp_path / EVENTS
    os.truncate(file, file.stat().st_size - cut)
    session, *rest = read_events(tmp_path)
    assert isinstance(session, SessionBegan)
    assert rest == [kept]
    after = used([], 3.0, "after")
    with RunLog(tmp_path) as log:
        log.write(after)
    kinds = [type(event) for event in read_events(tmp_path)]
    assert kinds == [SessionBegan, ProblemStarted, SessionBegan, Used]
    assert list(read_events(tmp_path))[-1] == after


GOOD = used([0], 1.0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json", r"events\.jsonl, line 2 is not JSON.*\n.*--resume .* --repair"),
        (b'{"event":"used', r"events\.jsonl, line 2 is not JSON"),
        (b'{"event":"used","problem":"\xff"}', r"events\.jsonl, line 2 is not JSON"),
        (
            b'{"event":"melted","t":1}',
            r"line 2 is not an event .*melted.*\n.*another version of tts",
        ),
        (b'{"event":"used","t":1}', r"line 2 is not an event .*problem"),
    ],
)
def test_a_line_that_is_no_event_is_named(tmp_path, line, said):
    (tmp_path / EVENTS).write_bytes(log_bytes(GOOD, line + b"\n", GOOD))
    events = read_events(tmp_path)
    next(events)
    with pytest.raises(RunError, match=said):
        next(events)


def test_a_line_beyond_all_bounds_is_no_event(tmp_path, monkeypatch):
    (tmp_path / EVENTS).write_bytes(log_bytes(GOOD, started("a", 2.0, "x" * 100)))
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 100)
    with pytest.raises(RunError, match="line 2 has 100 bytes or more"):
        list(read_events(tmp_path))


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_log_of_another_version_is_refused_by_its_number(tmp_path, version):
    other = SessionBegan(t=0.0, time="2030-01-01T00:00:00+00:00", version=version)
    (tmp_path / EVENTS).write_bytes(encode(other) + b'\n{"event":"melted","t":1}\n')
    with pytest.raises(RunError, match=rf"schema version {version}; .* version {VERSION} alone"):
        list(read_events(tmp_path))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_is_a_sentence_and_names_the_way_on(tmp_path, monkeypatch):
    create_run(tmp_path, {})

    def full(file, mode="rb"):
        return Path("/dev/full").open("r+b") if mode == "a+b" else open_file(file, mode)

    monkeypatch.setattr("tts.runs.log.open_file", full)
    log = RunLog(tmp_path)
    with pytest.raises(RunError, match="No space left on device") as caught:
        log.flush()
    assert f"tts bench --resume {tmp_path}" in str(caught.value)
    with pytest.raises(RunError, match="No space left"):
        log.close()


def test_sources_that_nobody_installed_have_no_version(monkeypatch):
    def missing(name):
        raise module.PackageNotFoundError(name)

    monkeypatch.setattr(module, "version_of", missing)
    assert surroundings()["tts"] == "unknown"
