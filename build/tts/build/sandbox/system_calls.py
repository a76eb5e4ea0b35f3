"""System calls that a program in the sandbox does without, and the filter that refuses them.

What is refused reaches memory that no limit counts (memfd, System V), the caller's keys, or parts
of the kernel that programs of a model have no business with; and it makes user namespaces, which
lead to all the rest. The answer is ENOSYS, as of a kernel without the call: glibc falls back from
clone3 to clone, whose flags can be looked at.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final

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
