"""A gateway in a process of its own keeps its databases while others use them beside it."""

import http.client
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tts.gateway.database import database_file
from tts.gateway.ledger import SEES_CHANGES_S
from tts.gateway.safety import KeyLimits, KeyStore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Gateway:
    """A gateway that runs, and one client at a time."""

    def __init__(self, process, address):
        self.process = process
        self._address = address

    def ask(self, key=None):
        """The status that a request with this key is answered with; it is logged."""
        with closing(http.client.HTTPConnection(*self._address, timeout=60)) as connection:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            connection.request("GET", "/v1/models", headers=headers)
            return connection.getresponse().status

    def deleted(self):
        """Files that it has open and nobody else can open any more."""
        names = []
        for file in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # a connection that has just been closed
                names.append(str(file.readlink()))
        return [name for name in names if name.endswith("(deleted)") and ".db" in name]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)


@pytest.fixture
def running(tmp_path, monkeypatch, tiny_deployment):
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    file = tmp_path / "tiny.json"
    file.write_text(tiny_deployment.model_dump_json())
    with started(file) as gateway:
        yield gateway


@contextmanager
def started(file):
    words = [sys.executable, "-m", "tests.gateway.instant_gateway", file]
    root = Path(__file__).parents[2]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        try:
            address = process.stdout.readline().partition("http://")[2].partition("/")[0]
            host, _, port = address.partition(":")
            yield Gateway(process, (host, int(port)))
        finally:
            process.kill()


def logged(check=False):
    """How many requests are in the log, as a program that knows nothing of it reads them."""
    with closing(sqlite3.connect(database_file())) as connection:
        if check:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return connection.execute("SELECT count(*) FROM requests").fetchone()[0]


def eventually(read):
    deadline = time.monotonic() + 60
    while not (found := read()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("seconds", [7, pytest.param(30, marks=pytest.mark.slow)])
def test_keys_and_log_are_whole_while_others_use_the_files(running, seconds):
    limits, asked = KeyLimits(), 0
    ends = time.monotonic() + seconds
    while asked == 0 or time.monotonic() < ends:
        key, made = KeyStore(database_file()).create("again", limits)
        time.sleep(SEES_CHANGES_S)
        assert running.ask(key) == 200
        KeyStore(database_file()).revoke(made.id)
        time.sleep(SEES_CHANGES_S)
        assert running.ask(key) == 401
        asked += 2
        logged()
        assert running.deleted() == []
    eventually(lambda: logged() == asked)
    running.kill()
    assert logged(check=True) == asked


def test_a_gateway_that_is_killed_leaves_whole_files_with_all_that_it_had_answered(running):
    key, _ = KeyStore(database_file()).create("one", KeyLimits())
    answered, killed = [], threading.Event()

    def ask():
        while not killed.is_set():
            try:
                status = running.ask(key)
            except (OSError, http.client.HTTPException):
                return
            answered.append((time.monotonic(), status))

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    while len(answered) < 50:
        time.sleep(0.05)
    time.sleep(1.5)
    ended = time.monotonic()
    running.kill()
    killed.set()
    for client in clients:
        client.join()
    due = [at for at, _ in answered if at < ended - 1]  # documented: 0.1 s; others have the CPU too
    assert len(due) >= 50
    assert logged(check=True) >= len(due)
    assert [each.name for each in KeyStore(database_file()).all()] == ["one"]


def test_files_that_are_removed_or_replaced_are_noticed(running):
    key, _ = KeyStore(database_file()).create("first", KeyLimits())
    time.sleep(SEES_CHANGES_S)
    assert running.ask(key) == 200
    eventually(lambda: logged() == 1)
    for file in database_file().parent.iterdir():
        file.unlink()
    time.sleep(SEES_CHANGES_S)
    assert running.ask(key) == 401
    key, _ = KeyStore(database_file()).create("second", KeyLimits())
    time.sleep(SEES_CHANGES_S)
    assert running.ask(key) == 200
    eventually(lambda: logged() == 2)
    assert running.deleted() == []
