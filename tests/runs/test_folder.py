"""The files of a run folder, and that one process at a time has it."""

import errno
import os
import signal
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import RunError
from tts.datasets.load import load_problems
from tts.problem import Problem, Turn
from tts.runs import folder as module
from tts.runs.checks import read_summary_fields, write_summary
from tts.runs.files import write_whole
from tts.runs.folder import (
    CONFIG,
    LOCK,
    PROBLEMS,
    create_run,
    has_begun,
    has_finished,
    is_worked_on,
    locked,
    read_config,
    read_problems,
    write_problems,
)
from tts.runs.groups import COMPARISON, create_group, write_comparison
from tts.runs.log import RunLog

PROBLEM = st.builds(
    Problem,
    st.text(),
    st.text(),
    st.none() | st.text(),
    st.none() | st.integers() | st.text(),
    st.lists(st.from_type(Turn), max_size=2).map(tuple),
)


def test_a_run_is_private_unless_its_folder_was_there(tmp_path):
    create_run(tmp_path / "run", {})
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    (tmp_path / "shared").mkdir(mode=0o755)
    create_run(tmp_path / "shared", {})
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755


def test_neither_a_run_nor_a_group_is_overwritten(tmp_path):
    create_group(tmp_path / "group", {"runs": []})
    create_run(tmp_path / "run", {})
    for folder in ("group", "run"):
        for create in (create_group, create_run):
            with pytest.raises(RunError, match="already holds a run") as caught:
                create(tmp_path / folder, {})
            assert f"--resume {tmp_path / folder}" in str(caught.value)


@pytest.mark.parametrize("name", ["answers.csv", "summary.json", "README.md", "data/0.parquet"])
def test_nothing_is_put_beside_files_of_other_origin(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("precious")
    with pytest.raises(RunError, match=f"is not empty: .*{name} belongs to no run"):
        create_run(tmp_path, {})
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_with_runs_and_what_a_killed_begin_leaves_is_used(tmp_path):
    create_run(tmp_path / "shards" / "1-of-2", {})
    (tmp_path / "run").mkdir()
    (tmp_path / ".lock").write_text("")
    problems = [Problem("a", "2 + 2?")]
    write_problems(tmp_path, problems)
    create_run(tmp_path, {})
    write_problems(tmp_path, problems)
    with pytest.raises(RunError, match="holds other problems"):
        write_problems(tmp_path, [])
    assert read_problems(tmp_path) == problems


def test_a_file_in_the_place_of_a_run_is_called_one(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RunError, match=r"holds no run: .*file is a file, and a run is a folder\."):
        read_config(file)
    for write in (
        lambda: create_run(file, {}),
        lambda: create_run(file / "run", {}),
        lambda: write_problems(file, []),
    ):
        with pytest.raises(RunError, match="cannot be written:") as refused:
            write()
        assert refused.value.hint.startswith("It is a file, or a path below a file")


def test_reading_what_is_no_run_or_not_finished(tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        read_summary_fields(tmp_path)
    with pytest.raises(RunError, match=f"Did you mean {tmp_path.name}"):
        read_config(tmp_path.with_name(f"{tmp_path.name}x"))
    create_run(tmp_path, {"a": 1})
    assert read_config(tmp_path) == {"a": 1}
    with pytest.raises(RunError, match="has not finished; continue it with --resume"):
        read_summary_fields(tmp_path)
    assert (has_begun(tmp_path), has_finished(tmp_path)) == (True, False)
    RunLog(tmp_path).close()
    write_summary(tmp_path, {"b": 2})
    assert read_summary_fields(tmp_path) == {"b": 2}
    assert has_finished(tmp_path)


@given(st.lists(PROBLEM, min_size=1, max_size=5))
def test_problems_come_back_as_they_were_given(tmp_path_factory, problems):
    folder = tmp_path_factory.mktemp("run")
    with pytest.raises(RunError, match="does not hold its problems"):
        read_problems(folder)
    write_problems(folder, problems)
    assert read_problems(folder) == problems


def test_problems_with_references_are_a_dataset_file(tmp_path):
    problems = [Problem("a", "2 + 2?", "4", 1), Problem("b", "50 - 8?", "42")]
    write_problems(tmp_path, problems)
    assert load_problems(str(tmp_path / PROBLEMS)) == problems


def test_problems_that_cannot_be_read_are_named(tmp_path):
    wrong = '{"id": 1, "problem": "x", "answer": "y", "level": null}\n'
    for text in ("not json\n", '{"id": "a"}\n', "[1]\n", wrong, "[" * 99999):
        (tmp_path / PROBLEMS).write_text(text)
        with pytest.raises(RunError, match=r"problems\.jsonl cannot be read .*\n.*id, problem"):
            read_problems(tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "nested more than 64 levels"),
        ("[]", "must hold a JSON object, not list"),
        ('{"seed": NaN}', "NaN"),
        ('{"seed": 1, "seed": 2}', "'seed' is given twice"),
        (r'{"dataset": "\ud800"}', "half of a surrogate pair"),
    ],
)
def test_a_damaged_run_json_is_named_with_what_is_wrong(tmp_path, text, complaint):
    (tmp_path / CONFIG).write_text(text)
    with pytest.raises(RunError, match=rf"run\.json .*{complaint}"):
        read_config(tmp_path)


def test_a_pipe_is_no_run_json(tmp_path):
    os.mkfifo(tmp_path / CONFIG)
    with pytest.raises(RunError, match=r"run\.json cannot be read: it is not a regular file"):
        read_config(tmp_path)


def test_tables_of_a_group_that_cannot_be_written_name_its_folder(tmp_path):
    (tmp_path / COMPARISON).mkdir()
    with pytest.raises(RunError, match=f"The run folder {tmp_path} cannot be written: Is a dir"):
        write_comparison(tmp_path, {})


def test_neither_a_device_nor_a_link_is_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("elsewhere")
    for name, why in (("pipe", "not a regular file"), ("link", "is a symbolic link")):
        with pytest.raises(OSError, match=why):
            write_whole(tmp_path / name, "new")
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_does_not_fit_leaves_the_old_one_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "file"
    write_whole(file, "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, "new")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]


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
