"""How many connections there may be, and the end of those whose client never says anything.

granian gives a client ten seconds for its headers, but waits for ever for the first bytes, which
tell HTTP/1 from HTTP/2. On Linux the kernel knows how much a connection has received and when, so
those are found and shut down here; elsewhere they stay.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST = 16_384
"""Connections at a time; more wait to be accepted."""
SILENT_S = 10.0
"""For so long a client may say less than the beginning of a request."""
EVERY_S = 5.0

_OTHER_FILES = 512
"""Left to files and to connections with engines."""
_BEGINNING = 24
"""Bytes from which on granian takes over: HTTP/2's preface. A request of HTTP/1 has more."""
_LAST_RECEIVED = struct.Struct("=52xI72xQ")
"""Of tcp_info (linux/tcp.h): tcpi_last_data_recv, milliseconds, and tcpi_bytes_received."""


def most_connections() -> int:
    """How many there may be at a time, after the process has asked for as many files as it may."""
    try:
        import resource
    except ImportError:  # not on Windows
        return MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(64, min(MOST, soft - _OTHER_FILES))
    return MOST


async def close_silent(port: int) -> None:
    """Shut down silent connections to a port of this process, until cancelled."""
    if sys.platform != "linux":
        return
    while True:
        await asyncio.sleep(EVERY_S)
        await asyncio.to_thread(shut_down_silent, port, SILENT_S)


def shut_down_silent(port: int, silent_s: float) -> int:
    """Shut down the connections to `port` that have been silent for so long; how many they were."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError), _duplicate(int(entry.name)) as connection:
            count += connection is not None and _shut_down_if_silent(connection, port, silent_s)
    return count


@contextmanager
def _duplicate(file: int) -> Iterator[socket.socket | None]:
    """A file as a socket of its own, as its number may come to mean another; None if it is none."""
    duplicate = os.dup(file)
    try:
        if stat.S_ISSOCK(os.fstat(duplicate).st_mode):
            with socket.socket(fileno=os.dup(duplicate)) as connection:
                yield connection
        else:
            yield None
    finally:
        os.close(duplicate)


def _shut_down_if_silent(connection: socket.socket, port: int, silent_s: float) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    if connection.getsockname()[1] != port:
        return False
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_RECEIVED.size)
    since_ms, received = _LAST_RECEIVED.unpack(info)
    if received >= _BEGINNING or since_ms < 1000 * silent_s:
        return False
    connection.shutdown(socket.SHUT_RDWR)  # fails on a socket that listens
    return True
