"""One process at a time has a run folder, and a process that dies lets go of it."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from tts.base.errors import RunError
from tts.runs import folder as module
from tts.runs.folder import LOCK, is_worked_on, locked

HOLD = (
    "import sys, time; from pathlib import Path; from tts.runs.folder import locked\n"
    "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def holder(tmp_path):
    """Another process that has the folder `run`."""
    folder = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process, folder
        process.kill()


def test_the_second_process_is_refused_by_the_first_ones_name_until_that_is_killed(holder):
    process, folder = holder
    assert is_worked_on(folder)
    held_by = f"in use by process {process.pid} on {socket.gethostname()}"
    with pytest.raises(RunError, match=held_by):
        locked(folder).__enter__()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (folder / LOCK).exists()
    assert not is_worked_on(folder)
    with locked(folder):
        assert (folder / LOCK).read_text() == f"process {os.getpid()} on {socket.gethostname()}"
    assert not (folder / LOCK).exists()


def test_a_process_has_a_folder_once_and_leaves_none_that_it_made_and_did_not_use(tmp_path):
    (tmp_path / "before").mkdir()
    for name in ("before", "made", "used", "used"):
        with locked(tmp_path / name):
            assert is_worked_on(tmp_path / name)
            with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
                locked(tmp_path / name).__enter__()
            if name == "used":
                (tmp_path / name / "file").write_text("")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["before", "file", "used"]


def test_a_lock_whose_file_was_removed_under_it_is_taken_again(tmp_path, monkeypatch):
    flock, calls = module.fcntl.flock, []

    def remove_once(file, operation):
        if not calls:  # between opening and locking, the last holder leaves
            (tmp_path / LOCK).unlink()
        calls.append(operation)
        flock(file, operation)

    monkeypatch.setattr(module.fcntl, "flock", remove_once)
    with locked(tmp_path):
        assert len(calls) == 2
        with pytest.raises(RunError, match="in use"):
            locked(tmp_path).__enter__()


def test_a_file_system_without_locks_is_used_without_one(tmp_path, monkeypatch):
    def unsupported(file, operation):
        raise OSError(module.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", unsupported)
    with locked(tmp_path):
        pass


def test_on_a_full_disk_a_folder_is_locked_without_a_name(tmp_path):
    script = (
        "import pathlib, resource, signal, sys; from tts.runs.folder import locked\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "with locked(pathlib.Path(sys.argv[1])): pass"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "run"], check=True)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written: Not a directory"):
        locked(tmp_path / "file" / "run").__enter__()


def test_the_lock_of_another_host_or_of_nobody_counts(tmp_path):
    for held in (f"process {2**22 + 1} on elsewhere", f"process {os.getpid()} on elsewhere", ""):
        (tmp_path / LOCK).write_text(held)
        assert is_worked_on(tmp_path)
