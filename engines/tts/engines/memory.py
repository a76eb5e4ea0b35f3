"""Memory of an engine's process: whether it ran short, after which a step's results cannot be
trusted, and giving back what the runtime maps without need.

OpenVINO (2026.4) compiles a kernel when it meets a shape for the first time. Where the system gives
it no memory for that, no error comes: the kernel is left out, and the output of its layer is
whatever the buffer held. So the memory is checked after every step, which takes some microseconds,
and the process of an engine that ran short ends; its owner opens another.
"""

from __future__ import annotations

import ctypes
import mmap
import resource
from pathlib import Path

from tts.base.errors import EngineError

SPARE = 64 << 20
"""Bytes that must be left after a step. The largest kernel took 256 KiB; larger buffers fail with
an exception."""

_STATUS = Path("/proc/self/status")
_MAPS = Path("/proc/self/maps")
_READ_ONLY = "r--s"  # shared and not writable: a page that is dropped is in the file


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


def release_mapped(file: Path) -> int:
    """Drop the pages of every read-only mapping of `file`; returns how many bytes are mapped.

    OpenVINO maps the weights, and at the first step every matrix is copied into the layout of the
    CPU's kernels. The mapping is kept until the engine closes but read no more, except for the rows
    of the embedding that prompts name: without this, an engine would hold its weights twice.

    Nothing is lost: a page that is read again comes back from the page cache or the disk. Does
    nothing where the system does not tell what is mapped.
    """
    if not _MAPS.is_file():
        return 0
    released, libc = 0, ctypes.CDLL(None)
    for line in _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        addresses, permissions, *_, path = line.split(maxsplit=5)
        if permissions != _READ_ONLY or path != str(file):
            continue
        start, end = (int(address, 16) for address in addresses.split("-"))
        size = end - start
        dropped = libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
        released += size if dropped == 0 else 0
    return released
