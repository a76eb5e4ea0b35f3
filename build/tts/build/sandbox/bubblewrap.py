"""The bubblewrap of this machine, the command line that wraps a program in it, and its filter.

The filter refuses system calls that a program does without: they reach memory that no limit counts
(memfd, System V), the caller's keys, or parts of the kernel that programs of a model have no
business with; or make user namespaces, which lead to all the rest. The answer is ENOSYS, as of a
kernel without the call: glibc falls back from clone3 to clone, whose flags can be looked at.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import secrets
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

_PROBE_S = 60.0
_INSIDE = (Path(__file__).parent / "inside.py").read_text(encoding="utf-8")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime")
TEMPORARY = "/tmp"
WORK = f"{TEMPORARY}/work"


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The bubblewrap of this machine, and how it is called here."""

    path: str | None
    """None if none can be used."""
    description: str
    """Its version, or why none can be used."""
    options: tuple[str, ...] = ()
    """What it takes from a program."""
    changes_user: bool = False
    """Whether programs run as a user of their own, for root's processes have no limit."""
    limits_processes: bool = False
    """Whether the kernel holds their processes to a number of their own."""


_ALONE = ("--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
_UNPRIVILEGED = ("--unshare-all", *_ALONE)
_PRIVILEGED = (
    *(f"--unshare-{space}" for space in ("ipc", "pid", "net", "uts", "cgroup-try")),
    *_ALONE,
    *(word for name in ("SETUID", "SETGID", "CHOWN") for word in ("--cap-add", f"CAP_{name}")),
)
"""Options for root, who gives these rights up inside, with the user."""
_FIRST_USER, _USERS = 0x70000000, 1 << 27
"""User ids that systems leave alone (systemd's UIDS-GIDS.md), one drawn for each program."""
_PROBE_TASKS = 4  # the parent inside, the probe, and two of four that it tries to start
_PROBE = """
import os, time
for started in range(4):
    try:
        if os.fork() == 0:
            time.sleep(60)
    except OSError:
        break
else:
    started = 4
os._exit(100 + started)
"""


@cache
def find_bubblewrap() -> Bubblewrap:
    """The bubblewrap of this machine, tried once, for root in two ways."""
    path = shutil.which("bwrap")
    if path is None:
        return Bubblewrap(None, "bubblewrap (bwrap) is not installed")
    ways = [Bubblewrap(path, "", _UNPRIVILEGED)]
    if os.geteuid() == 0:
        ways.insert(0, Bubblewrap(path, "", _PRIVILEGED, changes_user=True))
    try:
        version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.split()
        for way in ways:
            probe = _probed(way)
            if probe.returncode in range(100, 105):
                return replace(
                    way,
                    description=f"bubblewrap {version[-1] if version else 'of unknown version'}",
                    limits_processes=probe.returncode in range(101, 104),
                )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Bubblewrap(None, f"{path} does not run: {error}")
    return Bubblewrap(None, f"{path} cannot be used here: {probe.stderr.strip():.200}")


def _probed(way: Bubblewrap) -> subprocess.CompletedProcess[str]:
    """A program that starts more processes than it may; its status says how many it started."""
    theirs, ours = os.pipe()
    limits = {"memory_bytes": 1 << 30, "file_bytes": 0, "cpu_s": 60, "processes": 1000}
    line = wrapped(way, {**limits, "tasks": _PROBE_TASKS, "lifeline": theirs}, (), 1)
    try:
        return subprocess.run(
            [*line, sys.executable, "-I", "-S", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            pass_fds=(theirs,),
        )
    finally:
        os.close(ours)
        os.close(theirs)


def wrapped(
    way: Bubblewrap, limits: dict[str, int | None], reads: Iterable[Path], folder_mb: int
) -> list[str]:
    """The command line in front of a program's own."""
    user = _FIRST_USER + secrets.randbelow(_USERS) if way.changes_user else None
    inner = bare({**limits, "user": user, "filter": system_call_filter().hex()})
    return [way.path or "bwrap", *way.options, *_seen(reads, folder_mb), "--", *inner]


def bare(limits: dict[str, Any]) -> list[str]:
    """The command line in front of a program's own without bubblewrap."""
    return [sys.executable, "-I", "-S", "-c", _INSIDE, json.dumps(limits)]


def _seen(reads: Iterable[Path], folder_mb: int) -> Iterator[str]:
    """The options of bubblewrap for all that a program sees."""
    yield from ("--proc", "/proc", "--dev", "/dev")
    for folder in ("/dev/shm", TEMPORARY):
        yield from ("--perms", "1777", "--size", str(folder_mb << 20), "--tmpfs", folder)
    python = (sys.prefix, sys.base_prefix, sys.exec_prefix, beside_python())
    folders = {*python, *map(os.path.realpath, python), *map(str, reads)}
    for path in (*_SYSTEM, *_SYSTEM_FILES, *sorted(folders)):  # what is above others first
        for above in list(Path(path).parents)[-2::-1]:  # which bubblewrap would close to others
            yield from ("--perms", "0755", "--dir", str(above))
        yield from ("--ro-bind-try", path, path)
    yield from ("--perms", "0777", "--dir", WORK, "--chdir", WORK)
    if Path("/proc/keys").exists():
        yield from ("--ro-bind", "/dev/null", "/proc/keys")
    for path in ("/dev", "/proc", "/"):  # below /proc/sys root could change the kernel
        yield from ("--remount-ro", path)


def beside_python() -> str:
    """The folder of this Python's program."""
    return str(Path(sys.executable).parent)


_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
REFUSED: Final = {  # numbers on x86-64 and arm64, asm/unistd_64.h and asm-generic/unistd.h
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "mount": (165, 40),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone3": (435, 435),
}
CLONE: Final = (56, 220)
_NEW_USER = 0x10000000  # CLONE_NEWUSER
_X32 = 0x40000000  # the bit of x86-64's second set of numbers
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.ENOSYS


def system_call_filter() -> bytes:
    """The seccomp program for this kind of machine; empty where its numbers are unknown."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        return b""
    column = list(_ARCHITECTURES).index(machine)
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
    ]
    for numbers in REFUSED.values():
        lines += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _REFUSE)]
    lines += [
        (_EQUAL, 0, 3, CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NEW_USER),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
