"""Instructions that this thread executes: a cost that other work on the machine does not change."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Callable, Iterator

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
"""Its number on Linux, see perf_event_open(2)."""
_HARDWARE, _INSTRUCTIONS = 0, 1
_ATTRIBUTE_BYTES = 128
_NOT_OF_KERNEL, _NOT_OF_HYPERVISOR = 1 << 5, 1 << 6


@contextlib.contextmanager
def counted() -> Iterator[Callable[[], int | None]]:
    """What gives the instructions so far, in user space; None where the machine does not say."""
    counter = _open_counter()
    try:
        yield lambda: None if counter is None else struct.unpack("Q", os.read(counter, 8))[0]
    finally:
        if counter is not None:
            os.close(counter)


def _open_counter() -> int | None:
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return None
    flags = _NOT_OF_KERNEL | _NOT_OF_HYPERVISOR
    head = struct.pack("IIQQQQQ", _HARDWARE, _ATTRIBUTE_BYTES, _INSTRUCTIONS, 0, 0, 0, flags)
    attribute = ctypes.create_string_buffer(head, _ATTRIBUTE_BYTES)
    this_thread, any_processor, no_group = 0, -1, -1
    opened = ctypes.CDLL(None).syscall(number, attribute, this_thread, any_processor, no_group, 0)
    return opened if opened >= 0 else None
