"""Giving back the memory of an engine's weight file once the runtime has copies of its own.

OpenVINO maps the file, and at the first step every matrix is copied into the layout of the CPU's
kernels. The mapping is kept until the engine closes but read no more, except for the rows of the
embedding that prompts name: without this, an engine would hold its weights twice.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_READ_ONLY = "r--s"  # shared and not writable: a page that is dropped is in the file


def release_mapped(file: Path) -> int:
    """Drop the pages of every read-only mapping of `file`; returns how many bytes are mapped.

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
