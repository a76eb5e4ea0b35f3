"""The guard: a small process between us and a server that cleans up however either of us ends.

Run as a script (`python -I -S guard.py PARENT_PID MARK SOCKET [--private] [--shared FOLDER]
COMMAND... [--then LAST...]`), it starts the server and waits. MARK names this one start: its shared
memory begins with it. SOCKET is a Unix domain socket that it listens on, or empty. When the server
exits, when the guard is asked to stop (SIGTERM), or when the process that started it is gone
however it died (SIGKILL included), it stops the server, kills what is left of it (Python stubs,
ranks, workers), removes their shared memory and the socket, and runs LAST, which removes a
container. Only their user can read the files that they write (umask 077); with --private, for
Triton, none of them can widen that.

A server whose state is in FOLDER is shared: when the process that started it is gone, or leaves it
to the guard (SIGUSR1), it runs until its last user is gone. Each of them holds a shared lock on the
file USERS in FOLDER; the guard stops the server under an exclusive one.

Why a process: PR_SET_PDEATHSIG in the server itself would act on the end of the *thread* that
started it, gives no time for an orderly stop, does not reach the stubs and leaves their shared
memory. The guard has one thread, so there the same flag is safe, and covers the guard's own death.
Standard library only: it starts in about 20 ms and imports nothing of the toolkit.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

GRACE_S = 5.0
"""How long the server may take to stop before it is killed."""
REAP_S = 2.0
"""How long to wait for killed stubs to be gone."""
LAST_S = 20.0
"""How long the last command may take."""
LONGEST_STOP_S = GRACE_S + REAP_S + LAST_S + 1.0
"""A guard that has not ended so long after SIGTERM is stuck."""
PRIVATE = "--private"
SHARED = "--shared"
THEN = "--then"
STATE = "server.json"
"""The state file in a server's folder; written when the server is ready."""
USERS = "users.lock"
"""In a server's folder: each user of a shared server holds a shared lock on it."""
ENDED = 75
"""The guard's exit status where its server ended by itself, without an error of its own."""
_POLL_S = 0.25
_STOP = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_LEAVE = signal.SIGUSR1
_SIGNALS = {*_STOP, _LEAVE, signal.SIGCHLD}
_SHARED_MEMORY = Path("/dev/shm")
_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
# machine: AUDIT_ARCH of linux/audit.h, number of the system call fchmod
_FCHMOD = {"x86_64": (0xC000003E, 91), "aarch64": (0xC00000B7, 52)}


def run(
    parent: int,
    mark: str,
    socket: str,
    command: list[str],
    last: list[str],
    shared: str = "",
    *,
    private: bool = False,
) -> int:
    """Run `command` until it ends or has to; its exit status, 128+n after signal n, ENDED for 0.

    0 once the guard has stopped it, also where it did not stop in time and was killed. `shared` is
    the folder of a shared server, or empty.
    """
    os.umask(0o077)  # the stubs' shared memory holds prompts
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    # orphaned stubs become our children, so that we can wait for their end
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        before = _in_private_child if private else _in_child
        server = subprocess.Popen(command, start_new_session=True, preexec_fn=before)
    except OSError as error:
        sys.stderr.write(f"error: cannot run {command[0]}: {error.strerror}\n")
        return 127
    stopping = is_left = False
    while not _has_exited(server.pid):
        received = signal.sigtimedwait(_SIGNALS, _POLL_S)
        number = received.si_signo if received else 0
        is_left = is_left or number == _LEAVE or os.getppid() != parent
        unused = is_left and not (shared and _is_used(Path(shared), mark))
        if not stopping and (number in _STOP or unused):
            stopping = True
            deadline = time.monotonic() + GRACE_S
            server.terminate()
        if stopping and time.monotonic() > deadline:
            break
    # before the server is reaped: its process group id cannot belong to anyone else yet
    kill_group(server.pid)
    status = server.wait()
    remove_socket(socket)  # first: a server started after this one's death listens there too
    _end_the_rest()
    remove_shared_memory(mark)
    if stopping and is_left and shared:
        _forget(Path(shared) / STATE, mark)
    if last:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            # its output would be taken for the server's
            subprocess.run(
                last, timeout=LAST_S, capture_output=True, preexec_fn=_unblock, check=False
            )
    if stopping:
        return 0
    return (status or ENDED) if status >= 0 else 128 - status


def _is_used(folder: Path, mark: str) -> bool:
    """Whether a shared server has a user; if not, none comes as long as this process lives."""
    try:
        if mark not in (folder / STATE).read_text(encoding="utf-8"):
            return False  # it has never been ready: nobody knows it
        users = os.open(folder / USERS, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:  # what cannot be read now is looked at again
        return True
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)  # and never closed
    except OSError:  # somebody has it; or the disk knows no locks: whoever stops it says so
        os.close(users)
        return True
    return False


def _forget(state: Path, mark: str) -> None:
    with contextlib.suppress(OSError):
        if mark in state.read_text(encoding="utf-8"):
            state.unlink()


def kill_group(group: int) -> None:
    """SIGKILL every process of a group; it may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def remove_shared_memory(prefix: str) -> None:
    """Remove the shared memory regions of one server's stubs (killed ones leave them)."""
    for region in _SHARED_MEMORY.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)


def remove_socket(path: str) -> None:
    """Remove the socket of one server, which a killed one leaves, and the folder made for it."""
    if path:
        if Path(path).is_socket():
            Path(path).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            Path(path).parent.rmdir()


def close_shared_memory(prefix: str) -> None:
    """Take from others the right to open the shared memory of one server's stubs."""
    for region in _SHARED_MEMORY.glob(f"{prefix}*"):
        with contextlib.suppress(FileNotFoundError):
            region.chmod(0o600)


def _in_child() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _unblock()


def _in_private_child() -> None:
    _in_child()
    _keep_umask()


def _keep_umask() -> None:
    """Make fchmod do nothing in this process and its children, so that the umask holds.

    Triton's stubs make their shared memory with Boost, which sets its mode to 0644 by fchmod after
    it was created. Closing it later would be too late: a process that had opened it could read on.
    """
    arch, fchmod = _FCHMOD.get(os.uname().machine, (0, 0))
    if not arch:
        return
    # a program of struct sock_filter {code, jump if true, jump if false, value}: seccomp(2)
    instructions = [
        (0x20, 0, 0, 4),  # load the architecture
        (0x15, 0, 3, arch),
        (0x20, 0, 0, 0),  # load the number of the system call
        (0x15, 0, 1, fchmod),
        (0x06, 0, 0, 0x00050000),  # SECCOMP_RET_ERRNO with errno 0: success
        (0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *i) for i in instructions))
    header = struct.pack("HP", len(instructions), ctypes.addressof(program))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(header))


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _end_the_rest() -> None:
    """Kill and reap what outlived the server; orphans of other process groups included."""
    deadline = time.monotonic() + REAP_S
    with contextlib.suppress(ChildProcessError):  # none is left
        while time.monotonic() < deadline:
            for child in _children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)


def _children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _has_exited(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


if __name__ == "__main__":
    words, shared = sys.argv[4:], ""
    if private := words[0] == PRIVATE:
        words = words[1:]
    if words[0] == SHARED:
        shared, words = words[1], words[2:]
    split = words.index(THEN) if THEN in words else len(words)
    mark, socket = sys.argv[2:4]
    command, last = words[:split], words[split + 1 :]
    sys.exit(run(int(sys.argv[1]), mark, socket, command, last, shared, private=private))
