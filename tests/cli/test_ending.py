"""How a command ends, whatever happens in it."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tts.build.errors import ConfigError
from tts.cli.ending import BUG, INTERRUPTED, NO_READER, TERMINATED, ended


def test_an_error_for_the_user_is_its_message_hint_and_exit_code(capsys):
    def command():
        raise ConfigError("This is wrong.", hint="Do that.")

    assert ended(command) == 2
    assert capsys.readouterr() == ("", "error: This is wrong.\nDo that.\n")


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError("deep"), RuntimeError("x")])
def test_a_bug_is_a_sentence_and_a_file_with_its_traceback(tmp_path, monkeypatch, capsys, error):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["tts", "report", "a b"])

    def command():
        raise error

    assert ended(command) == BUG
    (file,) = (tmp_path / "tts-toolkit" / "bugs").iterdir()
    err = capsys.readouterr().err
    assert f"tts failed with {type(error).__name__}" in err
    assert f"This is a bug, please report it. The traceback is in {file}." in err
    assert "Traceback" not in err
    text = file.read_text()
    assert "$ tts report 'a b'" in text
    assert "Traceback" in text
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "MemoryError"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Cannot allocate memory"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "temporarily unavailable"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (ImportError("libm.so.6: failed to map segment from shared object"), "map segment"),
    ],
)
def test_a_machine_without_memory_is_no_bug(tmp_path, monkeypatch, capsys, error, said):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def command():
        raise error

    assert ended(command) == 1
    first, *hint = capsys.readouterr().err.splitlines()
    assert first.startswith("error: The machine has no memory, processes or files left for tts")
    assert said in first
    assert "tts bench --resume RUN" in " ".join(hint)
    assert list(tmp_path.iterdir()) == []


def test_memory_that_was_lacking_is_seen_behind_a_library_s_own_error(capsys):
    def command():
        try:
            raise ImportError("libstdc++.so.6: failed to map segment from shared object")
        except ImportError as error:
            raise ImportError("Error importing numpy") from error

    assert ended(command) == 1
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("error: The machine has no memory")
    assert first.endswith("libstdc++.so.6: failed to map segment from shared object.")


def test_of_many_bugs_the_newest_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for _ in range(12):
        ended(lambda: {}["x"])
    files = {str(file) for file in (tmp_path / "tts-toolkit" / "bugs").iterdir()}
    said = [line.split()[-1][:-1] for line in capsys.readouterr().err.splitlines()[1::2]]
    assert files == set(said[-10:])


def test_a_bug_without_a_folder_of_its_own_goes_to_the_temporary_files(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended(lambda: {}["x"])
    assert len(list(tmp_path.glob("tts-bug-*.txt"))) == 1


def test_a_bug_that_no_file_can_hold_keeps_its_traceback(monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/nowhere")
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    assert ended(lambda: {}["x"]) == BUG
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
def test_a_signal_in_a_command_of_typer_s_is_said(monkeypatch, number, code, said):
    program = (
        "import os, signal, sys, typer\n"
        "from tts.cli.ending import ended\n"
        "app = typer.Typer()\n"
        f"app.command()(lambda: os.kill(os.getpid(), {int(number)}))\n"
        "sys.argv[1:] = []\n"
        "sys.exit(ended(app))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_ctrl_c_is_no_bug(capsys):
    def command():
        raise KeyboardInterrupt

    assert ended(command) == INTERRUPTED
    assert capsys.readouterr().err == "Interrupted.\n"


def run(code, *arguments, **options):
    """Run a command through `ended` in a process of its own."""
    source = f"import sys; from tts.cli.ending import ended; sys.exit(ended(lambda: {code}))"
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_goes_away_ends_the_command_quietly(lines):
    read, write = os.pipe()
    os.close(read)
    done = run(f"print('x\\n' * {lines})", stdout=write)
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


def test_closed_outputs_are_no_traceback(tmp_path):
    source = "import sys; from tts.cli.ending import ended; sys.exit(ended(lambda: {}['x']))"
    command = f'exec {sys.executable} -c "$1" >&- 2>&-'
    done = subprocess.run(
        ["sh", "-c", command, "sh", source],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        timeout=60,
        check=False,
    )
    assert done.returncode == BUG
    assert [file.suffix for file in (Path(tmp_path) / "tts-toolkit" / "bugs").iterdir()] == [".txt"]


STEP = """
import signal, subprocess, sys
from tts.cli.ending import ended

def command():
    step = subprocess.Popen(["sleep", "600"])
    try:
        print(step.pid, flush=True)
        step.wait()
    finally:
        step.terminate()
        step.wait()

sys.exit(ended(command))
"""


@pytest.mark.parametrize("sigint", [signal.SIG_DFL, signal.SIG_IGN])
def test_sigterm_ends_a_command_in_order_even_where_ctrl_c_is_ignored(sigint):
    with subprocess.Popen(
        [sys.executable, "-c", STEP],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, sigint),
    ) as process:
        step = int(process.stdout.readline())
        if sigint is signal.SIG_IGN:
            process.send_signal(signal.SIGINT)
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (TERMINATED, "Stopped by SIGTERM.\n")
    assert not psutil.pid_exists(step)
