import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tts.gateway.observability import ledger
from tts.gateway.observability import record as request_log
from tts.gateway.observability.ledger import Ledger
from tts.gateway.observability.record import ServedRequest, read_requests
from tts.gateway.observability.recorder import Writer

NOW = time.time()


def record(number=0, **changes):
    made = ServedRequest(id=f"r{number}", endpoint="/v1/completions", time=NOW + number, t0=5.0)
    made.t1, made.t6, made.outcome, made.status = 5.25, 6.0, "ok", 200
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def ids(file, *args, **kwargs):
    return [found.id for found in read_requests(file, *args, **kwargs)]


@pytest.fixture
def log(file):
    log = Ledger(file)
    yield log
    log.close()


def test_what_was_written_is_read_with_times_from_its_arrival(log, file):
    full = record(
        **{"model": "demo:greedy", "strategy": "greedy", "stream": True, "key": "k"},
        **{"replica": "r", "error": "e", "prompt_tokens": 1, "answer_tokens": 2},
        **{"search_tokens": 3, "verifier_tokens": 4, "prompt": "a\0\ud7ff", "answer": ""},
        trace_parent="00-1-2-01",
    )
    log.write([full])
    (found,) = read_requests(file)
    expected = record(**{name: getattr(full, name) for name in full.__struct_fields__})
    expected.t0, expected.t1, expected.t6 = 0.0, 0.25, 1.0
    assert found == expected
    log.close()
    assert list(read_requests(file)) == [expected]
    assert [each.name for each in file.parent.iterdir()] == ["gateway.db"]


def test_what_a_killed_process_would_leave_in_the_wal_is_moved_to_the_file_now_and_then(log, file):
    wal = file.with_name(file.name + "-wal")
    for written in range(1, 4):
        for number in range(ledger.CHECKPOINT_EVERY):
            log.write([record(number)])
        log._disk.submit(int).result()  # after the checkpoint
        if written == 1:
            most = wal.stat().st_size
    assert wal.stat().st_size < 1.5 * most
    assert file.stat().st_size > 3 * ledger.CHECKPOINT_EVERY * 50
    assert len(ids(file)) == 3 * ledger.CHECKPOINT_EVERY


def test_several_gateways_write_to_one_file_and_are_read_in_order(log, file):
    logs = [log, Ledger(file), Ledger(file)]
    for number in range(9):
        logs[number % 3].write([record(number, model=f"demo{number % 2}:mcts")])
    logs[0].write([record(9), record(10, model="demo1")])
    assert ids(file) == [f"r{number}" for number in range(11)]
    assert ids(file, last=4) == ["r7", "r8", "r9", "r10"]
    assert ids(file, "demo1") == ["r1", "r3", "r5", "r7", "r10"]
    assert ids(file, "demo1", last=2, until=NOW + 9) == ["r5", "r7"]
    assert ids(file, since=NOW + 9) == ["r9", "r10"]
    assert ids(file, "demo") == ids(file, "' OR 1 --") == []
    for each in logs[1:]:
        each.close()


@pytest.mark.parametrize("why", ["age", "size"])
def test_the_oldest_requests_go(log, file, monkeypatch, why):
    for number in range(0, 3000, 100):
        log.write([record(n, time=n, prompt="x" * 40) for n in range(number, number + 100)])
        if number == 0 and why == "size":
            monkeypatch.setattr(request_log, "MAX_BYTES", 120_000)
            monkeypatch.setattr(request_log, "KEPT_S", NOW + 1e6)
    kept = ids(file)
    assert kept == [f"r{n}" for n in range(3000 - len(kept), 3000)]
    assert 0 < len(kept) < 1300 if why == "size" else kept == []
    log.write([record()])
    assert ids(file, last=1) == ["r0"]


@pytest.mark.parametrize("what", ["files", "folder"])
def test_a_file_that_was_removed_is_followed_by_another(log, file, what, caplog):
    log.write([record(0)])
    for each in file.parent.iterdir():
        each.unlink()
    if what == "folder":
        file.parent.rmdir()
    log.write([record(1)])
    log.write([record(2)])
    assert "is another file than before" in caplog.text
    assert (ids(file), log.lost_requests) == (["r1", "r2"], 0)
    held = [os.path.realpath(each) for each in Path("/proc/self/fd").glob("*")]  # on Linux
    assert not [name for name in held if name.startswith(f"{file}") and "(deleted)" in name]


def test_a_file_that_is_removed_while_it_is_written_costs_no_record(log, file, monkeypatch):
    write = ledger._write

    def removed_meanwhile(*asked):
        monkeypatch.setattr(ledger, "_write", write)
        for each in file.parent.iterdir():
            each.unlink()
        write(*asked)

    monkeypatch.setattr(ledger, "_write", removed_meanwhile)
    log.write([record(0)])
    assert (ids(file), log.lost_requests) == (["r0"], 0)


@pytest.mark.parametrize("wrong", ["text", "disk"])
def test_what_cannot_be_written_is_counted_and_stops_nothing(log, file, wrong):
    if wrong == "disk":
        log._connection.execute("PRAGMA query_only=ON")
    log.write([record(0), record(1, prompt="\ud800" if wrong == "text" else "")])
    assert log.lost_requests == 2
    log._connection.execute("PRAGMA query_only=OFF")
    log.write([record(2)])
    assert ids(file) == ["r2"]


def test_nobody_waits_for_what_is_written(log, file):
    """While another program holds the file, what the event loop asks is answered at once."""
    with sqlite3.connect(file, isolation_level=None) as holder:
        holder.execute("BEGIN IMMEDIATE")
        used = record(key="a", model="demo", answer_tokens=10)
        log.add(used)
        writing = threading.Thread(target=log.write, args=([used],))
        writing.start()
        for count in range(2, 22):  # while the thread is at every stage of its wait
            time.sleep(0.01)
            log.add(used)
            assert log.spending_of("a").today == 10 * count
            assert log.keys() == {}
            assert writing.is_alive()
        holder.execute("ROLLBACK")
    holder.close()
    writing.join()
    assert (ids(file), log.spending_of("a").today) == (["r0"], 210)


class Slow:
    """A sink that begins and then waits to be let go on."""

    def __init__(self):
        self.busy, self.go_on, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, records):
        self.busy.set()
        self.go_on.wait()
        self.batches.append([each.id for each in records])
        if len(self.batches) == 1:
            raise ValueError("the next batch is none the worse for it")


def test_the_writer_gives_everything_to_its_sink_some_at_a_time_before_it_ends():
    slow = Slow()
    writer = Writer(slow)
    for number in range(1000):
        writer.add(record(number))
    slow.go_on.set()
    writer.close()
    written = [name for batch in slow.batches for name in batch]
    assert written == [f"r{number}" for number in range(1000)]
    assert len(slow.batches) < 100


def test_what_nobody_has_time_for_is_counted(monkeypatch):
    monkeypatch.setattr("tts.gateway.observability.recorder.MAX_WAITING", 5)
    slow = Slow()
    writer = Writer(slow)
    writer.add(record())
    slow.busy.wait()
    for _ in range(8):
        writer.add(record())
    assert writer.lost_records == 3
    slow.go_on.set()
    writer.close()
    assert sum(map(len, slow.batches)) == 6


ENDLESS = """
import sys, time
from pathlib import Path
from tts.gateway.observability.ledger import Ledger
from tts.gateway.observability.recorder import Recorder

recorder = Recorder(Ledger(Path(sys.argv[1])))
while True:
    record = recorder.begin("/v1/completions")
    record.outcome, record.status = "ok", 200
    recorder.end(record)
    print(record.id, time.monotonic(), flush=True)
    time.sleep(0.001)
"""


def test_a_gateway_that_is_killed_leaves_a_log_that_lacks_the_last_requests_alone(file):
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, file], stdout=subprocess.PIPE, text=True
    ) as process:
        said = [process.stdout.readline().split() for _ in range(2000)]
        while_it_runs = ids(file)
        os.kill(process.pid, signal.SIGKILL)
        killed = time.monotonic()
        said += [line.split() for line in process.stdout]
    found = ids(file)
    assert found[: len(while_it_runs)] == while_it_runs
    assert found == [name for name, _ in said][: len(found)]  # in order, without a gap
    due = [name for name, ended in said if float(ended) < killed - 0.1]
    assert len(found) >= len(due) > 100
