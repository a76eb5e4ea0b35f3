"""How a command ends: whatever happens in it becomes a sentence and an exit code.

| exit code | when |
|---|---|
| 0 | it did what it was asked |
| 1, 2 | an error meant for the user (tts.base.errors), a wrong option, no memory left |
| 70 | a bug of ours; the traceback is in a file of the user's state (EX_SOFTWARE of sysexits.h) |
| 130 | Ctrl-C |
| 141 | whoever read its output went away, as in `tts report RUN | head -1` |
| 143 | SIGTERM, in order as by Ctrl-C: also where Ctrl-C is ignored (nohup, jobs of a script) |

With `--json` an error is a JSON document on stdout as well, unless the result stands there already.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import platformdirs

from tts.base.errors import ConfigError, FunctionError, Interrupted, TtsError
from tts.base.input_files import Unreadable, as_text
from tts.base.shown_text import printable
from tts.base.user_paths import private_folder

from . import json_output
from .json_output import CommandError, ErrorDocument

BUG = 70
INTERRUPTED = 130
NO_READER = 141
TERMINATED = 143
_BUG_FILE = "tts-bug-"
_BUGS_KEPT = 10
verbose = False
"""Whether tracebacks of errors that are meant for the user are printed, too (`tts -v`)."""
_REFUSALS = {errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}
_REFUSALS |= {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class _Terminated(KeyboardInterrupt):
    """SIGTERM, raised wherever the command is: what cleans up after Ctrl-C cleans up after it."""


def exit_code_of(command: Callable[[], object]) -> int:
    """The exit code of a command, however it ends; an exit that it decides itself passes."""
    json_output.printed = False
    _open_standard_streams()
    _print_anything()
    _let_sigterm_be_raised()
    try:
        sys.argv[1:] = map(_as_utf8, sys.argv[1:])
        try:
            command()
        finally:
            if sys.stdout:
                sys.stdout.flush()  # here a reader that is gone can be told from a bug
    except TtsError as error:
        if verbose:
            _say("".join(traceback.format_exception(error)).rstrip())  # with a server's words in it
        elif isinstance(error, FunctionError) and error.__cause__:  # the user's own code
            _say("".join(traceback.format_exception(error.__cause__)).rstrip())
        _say("error: " * (not isinstance(error, Interrupted)) + error.message)
        if error.hint:
            _say(error.hint)
        return _failed(type(error).__name__, error.message, error.exit_code, error.hint)
    except KeyboardInterrupt as interruption:
        return _stopped(interruption)
    except SystemExit as end:
        if behind := _interruption_behind(end):  # typer makes it an exit without a word
            return _stopped(behind)
        if isinstance(end.__context__, BrokenPipeError):  # rich makes it an exit with 1
            _drop_output()
            return NO_READER
        if message := _usage_error_behind(end):
            _failed("UsageError", message, 2)
        raise
    except BrokenPipeError:
        _drop_output()
        return NO_READER
    except Exception as error:
        if refusal := _refused(error):
            why = str(refusal) or type(refusal).__name__
            _say(f"error: The system refuses memory, processes, files or disk: {why:.300}.")
            _say("Free some, or raise the limit (ulimit -v, -u, -n). A run keeps what it has done:")
            _say("tts bench --resume RUN continues it.")
            return _failed(type(refusal).__name__, why, 1)
        _report_bug(error)
        return _failed(type(error).__name__, str(error), BUG)
    return 0


def _stopped(interruption: KeyboardInterrupt) -> int:
    if isinstance(interruption, _Terminated):
        _say("Stopped by SIGTERM.")
        return _failed("Terminated", "Stopped by SIGTERM.", TERMINATED)
    _say("Interrupted.")
    return _failed("Interrupted", "Interrupted.", INTERRUPTED)


def _failed(kind: str, message: str, exit_code: int, hint: str | None = None) -> int:
    """The exit code of a command that failed; the error goes to stdout if that is to be JSON."""
    if json_output.is_asked_for() and not json_output.printed:
        failure = CommandError(kind=kind, message=message, hint=hint, exit_code=exit_code)
        with contextlib.suppress(OSError, ValueError):  # stdout may be closed
            json_output.print_json(ErrorDocument(error=failure))
            sys.stdout.flush()
    return exit_code


def _usage_error_behind(end: SystemExit) -> str | None:
    """The mistake in the command line, which typer has printed."""
    format_message = getattr(end.__context__, "format_message", None)
    return str(format_message()) if format_message else None


def _interruption_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    if error is None or isinstance(error, KeyboardInterrupt):
        return error
    return _interruption_behind(error.__cause__ or error.__context__)


def _let_sigterm_be_raised() -> None:
    """Raise the first SIGTERM; further ones would cut short what cleans up after it."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Terminated

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)


def _refused(error: BaseException | None) -> BaseException | None:
    """The refusal behind an error of memory, a process or a file, by machine or user's limit."""
    if error is None or (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno in _REFUSALS)
        or (isinstance(error, RuntimeError) and "can't start new thread" in str(error))
        or (isinstance(error, ImportError) and "failed to map segment" in str(error))
    ):
        return error
    return _refused(error.__cause__ or error.__context__)  # libraries wrap what they catch


def _open_standard_streams() -> None:
    """Open those that were closed (`<&-`): else a socket gets such a number, and libuv aborts."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _print_anything() -> None:
    """Let no character that the terminal's encoding lacks end a command: it is escaped instead."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _as_utf8(argument: str) -> str:
    """An argument's bytes read as UTF-8, whatever the locale says; raises ConfigError."""
    try:
        return as_text(os.fsencode(argument))
    except Unreadable as error:
        raise ConfigError(
            f"The argument {argument!a} cannot be read: {error}.",
            hint="Arguments are UTF-8 text; rename a file whose name is not.",
        ) from error


def _drop_output() -> None:
    """Send what is still buffered nowhere, or Python would complain when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            os.dup2(nowhere, stream.fileno())


def _report_bug(error: Exception) -> None:
    kind = type(error).__name__
    try:
        folder = _bugs_folder()
        with tempfile.NamedTemporaryFile(
            "w",
            prefix=_BUG_FILE,
            suffix=".txt",
            dir=folder,
            delete=False,
            encoding="utf-8",
            errors="replace",
        ) as file:
            print(f"$ {shlex.join(sys.argv)}\nPython {sys.version}\n", file=file)
            traceback.print_exception(error, file=file)
        if folder is not None:
            files = sorted(folder.glob(f"{_BUG_FILE}*"), key=lambda each: each.stat().st_mtime_ns)
            for old in files[:-_BUGS_KEPT]:
                old.unlink(missing_ok=True)
    except OSError:  # nowhere to write it: better a traceback than nothing
        _say("".join(traceback.format_exception(error)).rstrip())
        _say(f"error: tts failed with {kind}: this is a bug, please report it, with the above.")
        return
    _say(f"error: tts failed with {kind}: {str(error) or 'no message':.300}")
    _say(f"This is a bug, please report it. The traceback is in {file.name}.")


def _bugs_folder() -> Path | None:
    """Where tracebacks are kept; None, for the folder of temporary files, if it cannot be made."""
    try:
        return private_folder(platformdirs.user_state_path("tts-toolkit") / "bugs")
    except (OSError, RuntimeError, ConfigError):  # a user without a home
        return None


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed, too
        print(printable(line), file=sys.stderr)  # noqa: T201
