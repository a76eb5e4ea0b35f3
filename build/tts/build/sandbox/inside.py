"""The parent of a program in the sandbox: sets its limits, watches it, and leaves nothing of it.

Run as `python -I -S -c SOURCE LIMITS COMMAND...`, with nothing but the standard library at hand.
LIMITS is JSON: cpu_s, memory_bytes, file_bytes and processes, and the lifeline: a pipe whose other
end is closed when the program is not wanted any more. It ends with the program's exit status, 128
and the signal that ended it, or one of the statuses below; all that the program started ends with
it. In bubblewrap it is process 1 of a namespace, which no signal from within stops or ends. pathlib
would take a third of its start.
"""
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

NOT_STARTED, MEMORY, PROCESSES = 127, 251, 252
"""Exit statuses: the program could not be started; it is ended for what it used."""
_TICK_S = 0.02
_DUMPABLE, _SUBREAPER = 4, 36  # PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER of linux/prctl.h
_WAITED = {signal.SIGCHLD}


def main() -> NoReturn:
    """Start the program, wait for its end, and end what is left of it."""
    limits, command = json.loads(sys.argv[1]), sys.argv[2:]
    with contextlib.suppress(OSError, AttributeError):
        prctl = ctypes.CDLL(None).prctl
        prctl(_SUBREAPER, 1, 0, 0, 0)  # orphans stay in reach
        prctl(_DUMPABLE, 0, 0, 0, 0)  # the program cannot trace this process
    os.set_blocking(limits["lifeline"], False)
    os.set_inheritable(limits["lifeline"], False)
    if not _is_wanted(limits):
        os._exit(NOT_STARTED)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    child = os.fork()
    if child == 0:
        _become(command, limits)
    status = _watch(child, limits)
    _end_all()
    os._exit(status)


def _become(command: list[str], limits: dict[str, Any]) -> NoReturn:
    for kind, most in (
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        # a second more of processor time before the signal that cannot be caught
        most = least + 1 if kind == resource.RLIMIT_CPU and least != hard else least
        resource.setrlimit(kind, (least, most))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED)
    try:
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}".encode())
    os._exit(NOT_STARTED)


def _watch(child: int, limits: dict[str, Any]) -> int:
    """The status to end with, once the program has ended, or must."""
    while True:
        signal.sigtimedwait(_WAITED, _TICK_S)
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitpid(-1, os.WNOHANG):
                if ended[0] == child:
                    code = os.waitstatus_to_exitcode(ended[1])
                    return code if code >= 0 else 128 - code
                if ended[0] == 0:
                    break
        started = _started()
        if len(started) > limits["processes"]:
            return PROCESSES
        if sum(started.values()) > limits["memory_bytes"]:
            return MEMORY
        if not _is_wanted(limits):
            return NOT_STARTED


def _is_wanted(limits: dict[str, Any]) -> bool:
    """Whether the other end of the lifeline is open: whoever holds it waits for the program."""
    try:
        return bool(os.read(limits["lifeline"], 1))
    except BlockingIOError:
        return True


def _started() -> dict[int, int]:
    """The processes below this one: bytes in memory by process id."""
    found: dict[int, int] = {}
    above = [str(os.getpid())]
    while above:
        process = above.pop()
        with contextlib.suppress(OSError):  # it has ended
            for task in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{task}/children") as file:
                    above += file.read().split()
            with open(f"/proc/{process}/statm") as file:
                found[int(process)] = int(file.read().split()[1]) * resource.getpagesize()
    found.pop(os.getpid(), None)
    return found


def _end_all() -> None:
    for _ in range(500):
        started = _started()
        for process in started:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not started:
            return
        time.sleep(_TICK_S / 10)


if __name__ == "__main__":
    main()
