"""Which run is meant, and whether somebody works on it, without touching any lock."""

import os
import socket
import subprocess
import sys

import pytest

from tts.build.errors import RunError
from tts.runs.folder import CONFIG, EVENTS, SUMMARY
from tts.runs.going_on import current_run, is_complete, is_worked_on, newest_unfinished
from tts.runs.groups import Member, create_group, group_config
from tts.runs.lock import LOCK, locked

MEMBERS = [Member(name, {name: "best"}, {}) for name in ("greedy", "dvts", "mcts")]


def run(folder, written, *, finished=False):
    folder.mkdir()
    for name in (CONFIG, EVENTS, *([SUMMARY] if finished else [])):
        (folder / name).write_text("{}")
        os.utime(folder / name, (written, written))
    return folder


def test_the_newest_unfinished_run_is_meant_but_one_that_is_worked_on_before_all(tmp_path):
    with pytest.raises(RunError, match="No run goes on in"):
        newest_unfinished(tmp_path / "nowhere")
    run(tmp_path / "finished", 50, finished=True)
    (tmp_path / "notes.txt").write_text("no run")
    with pytest.raises(RunError, match="No run goes on in"):
        newest_unfinished(tmp_path)
    old, new = run(tmp_path / "old", 10), run(tmp_path / "new", 20)
    assert newest_unfinished(tmp_path) == new
    os.utime(old / EVENTS, (30, 30))
    assert newest_unfinished(tmp_path) == old
    with locked(new):
        assert newest_unfinished(tmp_path) == new
    starting = tmp_path / "starting"
    with locked(starting):
        assert newest_unfinished(tmp_path) == starting


def test_a_folder_is_worked_on_while_a_process_has_its_lock(tmp_path):
    assert not is_worked_on(tmp_path)
    with locked(tmp_path):
        assert is_worked_on(tmp_path)
    assert not is_worked_on(tmp_path)


def test_the_lock_of_a_killed_process_counts_no_more_but_that_of_another_host_does(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    (tmp_path / LOCK).write_text(f"process {gone.pid} on {socket.gethostname()}")
    assert not is_worked_on(tmp_path)
    for held in (f"process {gone.pid} on elsewhere", f"process {os.getpid()} on elsewhere", ""):
        (tmp_path / LOCK).write_text(held)
        assert is_worked_on(tmp_path)


def test_of_a_group_the_run_that_it_is_at_is_meant(tmp_path):
    group = tmp_path / "group"
    create_group(group, group_config({}, MEMBERS))
    assert current_run(group) == group / "greedy"
    run(group / "greedy", 10)
    assert current_run(group) == group / "greedy"
    (group / "greedy" / SUMMARY).write_text("{}")
    assert current_run(group) == group / "greedy"
    run(group / "dvts", 5)
    assert current_run(group) == group / "dvts"
    assert newest_unfinished(tmp_path) == group
    assert current_run(group / "greedy") == group / "greedy"
    assert is_complete(group / "greedy")
    assert not is_complete(group)
