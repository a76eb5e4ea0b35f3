"""Whether memory ran short, after which a step's results cannot be trusted.

OpenVINO (2026.4) compiles a kernel when it meets a shape for the first time. Where the system gives
it no memory for that, no error comes: the kernel is left out, and the output of its layer is
whatever the buffer held. So the memory is checked after every step, which takes some microseconds,
and the process of an engine that ran short ends; its owner opens another.
"""

from __future__ import annotations

import mmap
import resource
from pathlib import Path

from tts.base.errors import EngineError

SPARE = 64 << 20
"""Bytes that must be left after a step. The largest kernel took 256 KiB; larger buffers fail with
an exception."""

_STATUS = Path("/proc/self/status")


class ShortOfMemoryError(EngineError):
    """The process ran short of memory, so what it computes may be wrong."""


def require_memory() -> None:
    """Raise ShortOfMemoryError if memory ran short."""
    if short := _shortage():
        raise ShortOfMemoryError(
            f"The engine ran short of memory, and may compute wrongly: {short}."
        )


def _shortage() -> str | None:
    """How memory ran short, as a clause; None if it did not.

    Notices a limit of this process that was met at any time, however much is free again, and
    memory that the system cannot give now.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and (most := _most_used()) + SPARE > limit:
        return (
            f"it used up to {most >> 20} MiB of address space, and its limit (ulimit -v) "
            f"is {limit >> 20} MiB"
        )
    try:
        mmap.mmap(-1, SPARE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return f"the system has not even {SPARE >> 20} MiB more for it"
    return None


def _most_used() -> int:
    """The most address space that this process had so far, bytes; 0 where it is not known."""
    if not _STATUS.is_file():
        return 0
    for line in _STATUS.read_bytes().splitlines():
        if line.startswith(b"VmPeak:"):
            return int(line.split()[1]) << 10
    return 0
