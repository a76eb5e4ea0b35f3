"""Thousands of connections that say nothing, or half a request, while others are answered."""

from __future__ import annotations

import resource
import socket
import time

from .raw import chat, exchange, post

CLOSED_WITHIN_S = 60.0


def run(address: tuple[str, int], count: int) -> dict[str, float]:
    """Open so many; how long a request takes beside them, and how long until they are closed.

    Raises AssertionError if a request is not answered, or they stay open.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, count + 1000), most))
    connections = []
    try:
        for number in range(count):
            connection = socket.create_connection(address, timeout=30)
            if number % 2:
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: ")
            connections.append(connection)
        opened = time.monotonic()
        assert exchange(address, post(chat())) == 200
        answered = time.monotonic() - opened
        deadline = opened + CLOSED_WITHIN_S
        left = connections
        while left and time.monotonic() < deadline:
            left = [connection for connection in left if not _closed(connection)]
            time.sleep(0.5)
        assert not left, f"{len(left)} of {count} idle connections are still open"
        return {"answered beside them, s": answered, "closed after, s": time.monotonic() - opened}
    finally:
        for connection in connections:
            connection.close()


def _closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while data := connection.recv(4096):
            del data  # why it is closed
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
