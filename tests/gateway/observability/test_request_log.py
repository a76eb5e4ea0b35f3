import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading

import pytest

from tts.build.errors import RunError
from tts.gateway.observability import RequestLog, Retention, ServedRequest, request_log
from tts.gateway.observability.recorder import Writer
from tts.gateway.observability.request_log import remove_old, segments
from tts.gateway.observability.request_reader import Query, read_requests


def record(number=0, **changes):
    made = ServedRequest(id=f"r{number}", endpoint="/v1/completions", time=1000.0 + number, t0=5.0)
    made.t1, made.t6, made.outcome, made.status = 5.25, 6.0, "ok", 200
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def ids(folder, *args, **kwargs):
    return [found.id for found in read_requests(folder, *args, **kwargs)]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "requests"


def test_what_was_written_is_read_with_times_from_its_arrival(folder):
    log = RequestLog(folder)
    full = record(
        model="demo:greedy",
        strategy="greedy",
        stream=True,
        key="k",
        replica="r",
        error="e",
        prompt_tokens=1,
        answer_tokens=2,
        search_tokens=3,
        verifier_tokens=4,
        prompt="a\0\ud7ff",
        answer="",
        trace_parent="00-1-2-01",
    )
    log.write([full])
    (found,) = read_requests(folder)
    expected = record(**{name: getattr(full, name) for name in full.__struct_fields__})
    expected.t0, expected.t1, expected.t6 = 0.0, 0.25, 1.0
    assert found == expected
    log.close()
    assert list(read_requests(folder)) == [expected]


def test_what_a_killed_process_would_leave_in_the_wal_is_moved_to_the_file_now_and_then(folder):
    log = RequestLog(folder)
    (segment,) = segments(folder)
    wal = segment.with_name(segment.name + "-wal")
    for written in range(1, 4):
        for number in range(request_log.CHECKPOINT_EVERY):
            log.write([record(number)])
        log._segment._disk.submit(int).result()  # after the checkpoint
        if written == 1:
            most = wal.stat().st_size
    assert wal.stat().st_size < 1.5 * most
    assert segment.stat().st_size > 3 * request_log.CHECKPOINT_EVERY * 50
    assert len(ids(folder)) == 3 * request_log.CHECKPOINT_EVERY
    log.close()
    assert [file.suffix for file in folder.iterdir()] == [".db"]


def test_only_the_owner_may_read_it(folder):
    log = RequestLog(folder)
    log.write([record()])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    log.close()


def test_a_segment_that_was_closed_is_one_plain_file(folder):
    log = RequestLog(folder)
    log.write([record()])
    log.close()
    assert [file.suffix for file in folder.iterdir()] == [".db"]


def test_a_gateway_that_was_asked_nothing_leaves_no_file(folder):
    RequestLog(folder).close()
    assert list(folder.iterdir()) == []


def test_several_gateways_write_to_one_folder_and_are_read_in_order(folder):
    logs = [RequestLog(folder) for _ in range(3)]
    for number in range(9):
        logs[number % 3].write([record(number)])
    assert ids(folder) == [f"r{number}" for number in range(9)]
    assert ids(folder, last=4) == ["r5", "r6", "r7", "r8"]
    for log in logs:
        log.close()


def test_a_query_finds_by_every_field_that_it_names(folder):
    log = RequestLog(folder)
    log.write(
        [
            record(0, model="demo", key="a"),
            record(1, model="demo:greedy", strategy="greedy", outcome="failed", status=500),
            record(2, endpoint="/v1/chat/completions", replica="two", t6=15.0),
        ]
    )
    log.close()
    for query, found in (
        (Query(model="demo"), ["r0"]),
        (Query(key="a"), ["r0"]),
        (Query(strategy="greedy"), ["r1"]),
        (Query(outcome="failed"), ["r1"]),
        (Query(status=200), ["r0", "r2"]),
        (Query(endpoint="/v1/chat/completions"), ["r2"]),
        (Query(replica="two"), ["r2"]),
        (Query(slower_than_s=5), ["r2"]),
        (Query(id="r1"), ["r1"]),
        (Query(since=1001.0), ["r1", "r2"]),
        (Query(until=1001.0), ["r0"]),
        (Query(since=1001.0, status=200), ["r2"]),
        (Query(model="' OR 1 --"), []),
    ):
        assert ids(folder, query) == found, query


def test_a_full_segment_is_followed_by_another_and_the_oldest_go(folder):
    retention = Retention(segment_bytes=30_000, total_bytes=120_000)
    log = RequestLog(folder, retention)
    for number in range(0, 2000, 100):
        log.write([record(n, prompt="x" * 20) for n in range(number, number + 100)])
    kept = ids(folder)
    assert 2 < len(segments(folder)) < 10
    assert sum(file.stat().st_size for file in segments(folder)) < 200_000
    assert kept == [f"r{n}" for n in range(2000 - len(kept), 2000)]
    assert len(kept) < 2000
    log.close()


def test_a_segment_that_is_too_old_is_followed_by_another(folder):
    log = RequestLog(folder, Retention(segment_s=0))
    for number in range(3):
        log.write([record(number)])
    assert len(segments(folder)) == 3
    assert ids(folder) == ["r0", "r1", "r2"]
    log.close()


def test_a_segment_is_written_for_a_day(folder, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(request_log.time, "monotonic", lambda: now[0])
    log = RequestLog(folder)
    for passed in (0, 24 * 3600 - 1, 1, 0):  # the third finds it full when it is written
        now[0] += passed
        log.write([record()])
    log.close()
    assert len(segments(folder)) == 2


def test_what_a_gateway_still_writes_is_never_removed(folder):
    log = RequestLog(folder)
    log.write([record()])
    remove_old(folder, Retention(total_bytes=0, total_s=0))
    assert ids(folder) == ["r0"]
    log.close()
    remove_old(folder, Retention(total_bytes=0, total_s=0))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("what", ["segment", "-wal", "folder"])
def test_a_segment_that_was_removed_is_followed_by_another(folder, what, caplog):
    log = RequestLog(folder)
    log.write([record(0)])
    (segment,) = segments(folder)
    if what == "-wal":
        segment.with_name(segment.name + what).unlink()
    else:
        for file in folder.iterdir():
            file.unlink()
    if what == "folder":
        folder.rmdir()
    log.write([record(1)])
    log.write([record(2)])
    assert "the log goes on in another file" in caplog.text
    assert [found for found in ids(folder) if found != "r0"] == ["r1", "r2"]
    assert log.lost == 0
    log.close()
    assert [found for found in ids(folder) if found != "r0"] == ["r1", "r2"]


def test_a_segment_that_is_removed_while_it_is_written_costs_no_record(folder, monkeypatch):
    log = RequestLog(folder)
    write = log._segment.write

    def removed_meanwhile(records):
        for file in folder.iterdir():
            file.unlink()
        write(records)

    monkeypatch.setattr(log._segment, "write", removed_meanwhile)
    log.write([record(0)])
    assert (ids(folder), log.lost) == (["r0"], 0)
    log.close()


def test_removing_old_ones_leaves_the_locks_of_what_is_written(folder):
    log = RequestLog(folder)
    log.write([record()])
    remove_old(folder, Retention(total_bytes=0, total_s=0))
    code = (
        "import sqlite3, sys\n"
        "sqlite3.connect(sys.argv[1], timeout=0).execute('PRAGMA journal_mode=DELETE')"
    )
    words = [sys.executable, "-c", code, *segments(folder)]
    there = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "locked" in there.stderr
    log.close()


def test_a_segment_that_cannot_be_begun_costs_records_and_leaves_no_file(folder, monkeypatch):
    log = RequestLog(folder, Retention(segment_s=0))
    log.write([record(0)])
    monkeypatch.setattr(request_log, "_TABLE", "CREATE nonsense")
    log.write([record(1), record(2)])
    assert (log.lost, ids(folder)) == (2, ["r0"])
    assert len(list(folder.iterdir())) == 1


def test_records_that_sqlite_cannot_hold_are_counted(folder):
    log = RequestLog(folder)
    with pytest.raises(UnicodeEncodeError):
        log.write([record(prompt="\ud800")])
    assert log.lost == 1
    log.write([record(2)])
    assert ids(folder) == ["r2"]
    log.close()


def test_a_damaged_segment_is_named_and_the_others_are_read(folder):
    for number in range(3):
        log = RequestLog(folder)
        log.write([record(number)])
        log.close()
    bad = next(file for file in segments(folder) if b"r1" in file.read_bytes())
    bad.write_bytes(b"SQLite format 3\0" + b"nonsense" * 600)
    told = []
    assert ids(folder, unreadable=lambda file, why: told.append(file)) == ["r0", "r2"]
    assert told == [bad]


def test_segments_of_other_versions_are_read_as_far_as_they_go(folder):
    folder.mkdir()
    with sqlite3.connect(folder / "20250101T000000-00.db") as old:
        old.execute(
            "CREATE TABLE requests (id TEXT, time REAL, endpoint TEXT, t6 REAL, later TEXT)"
        )
        old.execute("INSERT INTO requests VALUES ('old', 1, '/v1/completions', 2, 'unknown')")
    old.close()
    (found,) = read_requests(folder)
    assert (found.id, found.t6, found.model) == ("old", 2.0, "")


def test_a_disk_that_takes_nothing_costs_records_but_no_request(folder):
    log = RequestLog(folder)
    log._segment._connection.execute("PRAGMA query_only=ON")
    log.write([record(0), record(1)])
    assert log.lost == 2
    log._segment._connection.execute("PRAGMA query_only=OFF")
    log.write([record(2)])
    assert ids(folder) == ["r2"]
    log.close()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        RequestLog(tmp_path / "file" / "requests")


def test_the_writer_gives_everything_to_every_sink_before_it_ends():
    one, two = [], []

    def broken(records):
        raise ValueError("no")

    writer = Writer([one.extend, broken, two.extend])
    for number in range(1000):
        writer.add(record(number))
    writer.close()
    assert [r.id for r in one] == [r.id for r in two] == [f"r{n}" for n in range(1000)]


def test_what_ends_at_about_the_same_time_is_written_together():
    busy, go_on, batches = threading.Event(), threading.Event(), []

    def slow(records):
        busy.set()
        go_on.wait()
        batches.append(len(records))

    writer = Writer([slow])
    for _ in range(1000):
        writer.add(record())
    busy.wait()
    go_on.set()
    writer.close()
    assert sum(batches) == 1000
    assert len(batches) < 100


def test_what_nobody_has_time_for_is_counted(monkeypatch):
    monkeypatch.setattr("tts.gateway.observability.recorder.MOST_WAITING", 5)
    busy, go_on, written = threading.Event(), threading.Event(), []

    def slow(records):
        busy.set()
        go_on.wait()
        written.extend(records)

    writer = Writer([slow])
    writer.add(record())
    busy.wait()
    for _ in range(8):
        writer.add(record())
    assert writer.lost == 3
    go_on.set()
    writer.close()
    assert len(written) == 6


ENDLESS = """
import sys, time
from pathlib import Path
from tts.gateway.observability import Recorder, RequestLog

recorder = Recorder(RequestLog(Path(sys.argv[1])))
while True:
    record = recorder.begin("/v1/completions")
    record.outcome, record.status = "ok", 200
    recorder.end(record)
    print(record.id, flush=True)
    time.sleep(0.001)
"""


def test_a_gateway_that_is_killed_leaves_a_log_that_lacks_the_last_requests_alone(folder):
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, folder], stdout=subprocess.PIPE, text=True
    ) as process:
        said = []
        while not ids(folder):
            said.append(process.stdout.readline().strip())
        while_it_runs = ids(folder)
        os.kill(process.pid, signal.SIGKILL)
        said += [line.strip() for line in process.stdout]
    found = ids(folder)
    assert found[: len(while_it_runs)] == while_it_runs
    assert found[: len(said)] == said[: len(found)]  # in order, without a gap
