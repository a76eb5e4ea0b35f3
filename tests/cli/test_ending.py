"""How a command ends, whatever happens in it."""

import errno
import os
import signal
import subprocess
import sys

import psutil
import pytest

from tts.base.errors import (
    BuildError,
    CheckpointError,
    ConfigError,
    DatasetError,
    RunError,
    WrongFolder,
)
from tts.cli.ending import BUG, INTERRUPTED, NO_READER, TERMINATED, exit_code_of
from tts.endpoints.functions import users_code


def raising(error):
    def command():
        raise error

    return command


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """The folder of the user's state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def bugs(state):
    return state / "tts-toolkit" / "bugs"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (ConfigError, 2),
        (DatasetError, 2),
        (CheckpointError, 2),
        (WrongFolder, 2),
        (BuildError, 1),
        (RunError, 1),
    ],
)
def test_an_error_for_the_user_is_its_message_hint_and_exit_code(capsys, kind, code):
    assert exit_code_of(raising(kind("This is wrong.", hint="Do that."))) == code
    assert capsys.readouterr() == ("", "error: This is wrong.\nDo that.\n")


def test_a_servers_words_cannot_control_the_terminal_in_a_traceback_either(monkeypatch, capsys):
    monkeypatch.setattr("tts.cli.ending.verbose", True)
    assert exit_code_of(raising(ConfigError("\x1b]0;pwn\a\x1b[2J"))) == 2
    err = capsys.readouterr().err
    assert err.count("␛]0;pwn␇␛[2J") == 2
    assert "Traceback" in err
    assert "\x1b" not in err


def test_code_of_the_users_ends_with_its_own_traceback(capsys):
    def users_function():
        with users_code("mine.score"):
            {}["x"]

    assert exit_code_of(users_function) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert __file__ in lines[1]
    assert lines[-3].startswith("KeyError")
    assert lines[-2].startswith("tts called mine.score: ")
    assert lines[-1] == "error: mine.score raised KeyError: 'x'."


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError("deep"), RuntimeError("x")])
def test_a_bug_is_a_sentence_and_a_file_with_its_traceback(bugs, monkeypatch, capsys, error):
    monkeypatch.setattr("sys.argv", ["tts", "report", "a b"])
    assert exit_code_of(raising(error)) == BUG
    (file,) = bugs.iterdir()
    err = capsys.readouterr().err
    assert f"tts failed with {type(error).__name__}" in err
    assert f"The traceback is in {file}." in err
    assert "Traceback" not in err
    text = file.read_text()
    assert "$ tts report 'a b'" in text
    assert "Traceback" in text
    assert file.stat().st_mode & 0o077 == 0


def behind(error):
    """What a library makes of an error that it catches."""
    wrapped = ImportError("Error importing numpy")
    wrapped.__cause__ = error
    return wrapped


MAP = ImportError("libm.so.6: failed to map segment from shared object")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "MemoryError"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Cannot allocate memory"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "temporarily unavailable"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError(errno.EROFS, "Read-only file system", "x"), "Read-only file system: 'x'"),
        (MAP, MAP.msg),
        (behind(MAP), MAP.msg),
    ],
)
def test_a_machine_without_memory_is_no_bug(state, capsys, error, said):
    assert exit_code_of(raising(error)) == 1
    first, *hint = capsys.readouterr().err.splitlines()
    assert first.startswith("error: The system refuses memory, processes, files or disk: ")
    assert first.endswith(f"{said}.")
    assert "tts bench --resume RUN" in " ".join(hint)
    assert not state.exists()


def test_of_many_bugs_the_newest_are_kept(bugs, capsys):
    for _ in range(12):
        exit_code_of(raising(KeyError("x")))
    files = {str(file) for file in bugs.iterdir()}
    said = [line.split()[-1][:-1] for line in capsys.readouterr().err.splitlines()[1::2]]
    assert files == set(said[-10:])


def test_a_bug_without_a_folder_of_its_own_goes_to_the_temporary_files(
    state, tmp_path, monkeypatch
):
    state.touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    exit_code_of(raising(KeyError("x")))
    assert len(list(tmp_path.glob("tts-bug-*.txt"))) == 1


def test_a_bug_that_no_file_can_hold_keeps_its_traceback(state, monkeypatch, capsys):
    state.touch()
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    assert exit_code_of(raising(KeyError("x"))) == BUG
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "this is a bug, please report it" in err


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, INTERRUPTED, "Interrupted.\n"),
        (signal.SIGTERM, TERMINATED, "Stopped by SIGTERM.\n"),
    ],
)
def test_a_signal_in_a_command_of_typer_s_is_said(number, code, said):
    program = (
        "import os, signal, sys, typer\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from tts.cli.ending import exit_code_of\n"
        "app = typer.Typer()\n"
        f"app.command()(lambda: os.kill(os.getpid(), {int(number)}))\n"
        "sys.argv[1:] = []\n"
        "sys.exit(exit_code_of(app))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_ctrl_c_is_no_bug(capsys):
    assert exit_code_of(raising(KeyboardInterrupt())) == INTERRUPTED
    assert capsys.readouterr().err == "Interrupted.\n"


def run(code, *arguments, **options):
    """Run a command through `exit_code_of` in a process of its own."""
    source = f"import sys, tts.cli.ending as e; sys.exit(e.exit_code_of(lambda: {code}))"
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize(
    "code",
    [
        "print('x')",
        "print('x\\n' * 100_000)",
        "__import__('rich.console').console.Console().print(1)",
    ],
)
def test_a_reader_that_goes_away_ends_the_command_quietly(code):
    read, write = os.pipe()
    os.close(read)
    done = run(code, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (NO_READER, b"")


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
def test_any_text_is_read_and_printed_whatever_the_locale(locale):
    done = run(
        "print(ascii(sys.argv[1]), sys.argv[1])",
        "é─".encode(),
        stdout=subprocess.PIPE,
        env={**os.environ, **locale},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(rb"'\xe9\u2500' ")


def test_an_argument_that_is_no_utf_8_is_refused_by_name():
    done = run("print('not reached')", b"caf\xe9", stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (2, b"")
    assert rb"argument 'caf\udce9' cannot be read: it is not UTF-8: byte 0xe9" in done.stderr


def test_closed_outputs_are_no_traceback(bugs):
    source = "import sys, tts.cli.ending as e; sys.exit(e.exit_code_of(lambda: {}['x']))"
    command = f'exec {sys.executable} -c "$1" >&- 2>&-'
    done = subprocess.run(["sh", "-c", command, "sh", source], timeout=60, check=False)
    assert done.returncode == BUG
    assert [file.suffix for file in bugs.iterdir()] == [".txt"]


def test_no_socket_gets_the_number_of_a_closed_stream():
    """Where it does, libuv aborts the process when it closes the socket."""
    source = (
        "import socket, sys; from tts.cli.ending import exit_code_of; "
        "sys.exit(exit_code_of(lambda: sys.exit(socket.socket().detach())))"
    )
    command = f'exec {sys.executable} -c "$1" <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", command, "sh", source], timeout=60, check=False)
    assert done.returncode == 3


STEP = """
import signal, subprocess, sys
from tts.cli.ending import exit_code_of

signal.signal(signal.SIGINT, getattr(signal, sys.argv[1]))

def command():
    step = subprocess.Popen(["sleep", "600"])
    try:
        print(step.pid, flush=True)
        step.wait()
    finally:
        step.terminate()
        step.wait()

sys.exit(exit_code_of(command))
"""


@pytest.mark.parametrize("sigint", ["default_int_handler", "SIG_IGN"])
def test_sigterm_ends_a_command_in_order_even_where_ctrl_c_is_ignored(sigint):
    with subprocess.Popen(
        [sys.executable, "-c", STEP, sigint],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        step = int(process.stdout.readline())
        if sigint == "SIG_IGN":
            process.send_signal(signal.SIGINT)
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (TERMINATED, "Stopped by SIGTERM.\n")
    assert not psutil.pid_exists(step)
