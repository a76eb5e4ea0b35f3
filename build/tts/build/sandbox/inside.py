"""The parent of a program in the sandbox: sets its limits, watches it, and leaves nothing of it.

Run as `python -I -S -c SOURCE LIMITS COMMAND...`, with nothing but the standard library at hand.
LIMITS is JSON: cpu_s, memory_bytes, file_bytes, processes and tasks (processes with their threads,
null where the kernel would count others of the user), user (to become, if any), filter (of system
calls, in hexadecimal digits), and the lifeline: a pipe whose other end is closed when the program
is not wanted any more. It ends with the program's exit status, 128 and the signal that ended it, or
one of the statuses below; all that the program started ends with it. In bubblewrap it is process 1
of a namespace, which no signal from within stops or ends. pathlib would take a third of its start.
"""
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

NOT_STARTED, MEMORY, PROCESSES = 127, 251, 252
"""Exit statuses: the program could not be started; it is ended for what it used."""
_TICK_S = 0.02
_OPEN_FILES = 256
_INODE_BYTES = 1024  # of kernel memory, about, for an empty file
# PR_SET_PDEATHSIG, _DUMPABLE, _SECCOMP, _CHILD_SUBREAPER of linux/prctl.h
_DEATH_SIGNAL, _DUMPABLE, _SECCOMP, _SUBREAPER = 1, 4, 22, 36
_FILTER_MODE = 2  # SECCOMP_MODE_FILTER of linux/seccomp.h
_WAITED = {signal.SIGCHLD}


def main() -> NoReturn:
    """Start the program, wait for its end, and end what is left of it."""
    limits, command = json.loads(sys.argv[1]), sys.argv[2:]
    _leave_rights(limits)
    os.set_blocking(limits["lifeline"], False)
    os.set_inheritable(limits["lifeline"], False)
    if not _is_wanted(limits):
        os._exit(NOT_STARTED)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    child = os.fork()
    if child == 0:
        _become(command, limits)
    status = _watch(child, limits)
    if os.getpid() != 1:  # whose end is that of all others
        _end_all()
    os._exit(status)


def _leave_rights(limits: dict[str, Any]) -> None:
    libc = ctypes.CDLL(None)
    if user := limits["user"]:  # root's processes are not counted
        for stream in range(3):
            os.fchown(stream, user, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)  # forgotten with the rights
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)  # orphans stay in reach
    libc.prctl(_DUMPABLE, 0, 0, 0, 0)  # the program cannot trace this process
    if limits["filter"]:
        lines = bytes.fromhex(limits["filter"])
        address = ctypes.cast(ctypes.c_char_p(lines), ctypes.c_void_p).value
        program = struct.pack("HP", len(lines) // 8, address)
        if libc.prctl(_SECCOMP, _FILTER_MODE, program, 0, 0):
            sys.exit("system calls cannot be filtered")


def _become(command: list[str], limits: dict[str, Any]) -> NoReturn:
    for kind, most in (
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NPROC, limits["tasks"]),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        if most is None:
            continue
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
    status = None
    while True:
        signal.sigtimedwait(_WAITED, _TICK_S)
        with contextlib.suppress(ChildProcessError):
            while (waited := os.wait4(-1, os.WNOHANG))[0]:
                if waited[0] == child:
                    status = _status(waited[1], waited[2], limits["cpu_s"])
        processes, memory = 0, _in_files()
        for _, resident in _started():
            processes, memory = processes + 1, memory + resident
            if processes > limits["processes"]:  # they may be more at every look
                return PROCESSES
        if memory > limits["memory_bytes"]:
            return MEMORY
        if status is not None:
            return status
        if not _is_wanted(limits):
            return NOT_STARTED


def _status(waited: int, usage: resource.struct_rusage, cpu_s: int) -> int:
    """The status for that of a wait; a program may have ignored the signal for CPU time."""
    code = os.waitstatus_to_exitcode(waited)
    if code == -signal.SIGKILL and usage.ru_utime + usage.ru_stime >= cpu_s:
        code = -signal.SIGXCPU
    return code if code >= 0 else 128 - code


def _is_wanted(limits: dict[str, Any]) -> bool:
    """Whether the other end of the lifeline is open: whoever holds it waits for the program."""
    try:
        return bool(os.read(limits["lifeline"], 1))
    except BlockingIOError:
        return True


def _started() -> Iterator[tuple[int, int]]:
    """The processes below this one, each with its bytes in memory."""
    above = [str(os.getpid())]
    for process in above:
        try:
            for task in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{task}/children") as file:
                    above += file.read().split()
            with open(f"/proc/{process}/statm") as file:
                pages = int(file.read().split()[1])
        except OSError:  # it has ended
            continue
        if process != above[0]:
            yield int(process), pages * resource.getpagesize()


def _in_files() -> int:
    """Memory of the temporary folders, where this process has its own."""
    if os.getpid() != 1:
        return 0
    folders = [os.statvfs(folder) for folder in ("/tmp", "/dev/shm")]
    return sum(
        (each.f_blocks - each.f_bfree) * each.f_frsize
        + (each.f_files - each.f_ffree) * _INODE_BYTES
        for each in folders
    )


def _end_all() -> None:
    for _ in range(500):
        remain = False
        for process, _ in _started():
            remain = True
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not remain:
            return
        time.sleep(_TICK_S / 10)


if __name__ == "__main__":
    main()
