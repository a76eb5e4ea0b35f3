"""Requests as bytes on a socket, and what comes back."""

from __future__ import annotations

import json
import re
import socket
from typing import Any

ANSWER_S = 45.0
"""A gateway that says nothing for so long hangs: its own limits are 10 and 30 seconds."""
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


def post(body: bytes, path: str = "/v1/chat/completions", extra: str = "") -> bytes:
    """A whole request."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{extra}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def chat(**fields: Any) -> bytes:
    """The body of a small chat."""
    messages = [{"role": "user", "content": "Compute 12 + 30."}]
    return json.dumps({"model": "demo", "messages": messages, "max_tokens": 4, **fields}).encode()


def exchange(address: tuple[str, int], *parts: bytes, half_close: bool = False) -> int | None:
    """Send the parts; the status of the answer, None for a connection that is closed without one.

    Raises TimeoutError if nothing happens.
    """
    with socket.create_connection(address, timeout=ANSWER_S) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        except TimeoutError:
            raise
        except OSError:
            pass  # closed while more was to come: perhaps after an answer
        try:
            answer = connection.recv(65536)
        except TimeoutError:
            raise
        except OSError:
            return None
    status = _STATUS.match(answer)
    return int(status[1]) if status else None
