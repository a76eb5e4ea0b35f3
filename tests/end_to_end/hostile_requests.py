"""Requests that are wrong, oversize, slow, broken off or never sent, over raw sockets."""

from __future__ import annotations

import json
import random
import re
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.end_to_end.gateways import connected, post

CLOSED_WITHIN_S = 60.0
"""Until a connection that says nothing is closed."""
ANSWER_S = 45.0
"""A gateway that says nothing for so long hangs: its own limits are 10 and 30 seconds."""
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
Bytes = Callable[[random.Random], bytes]
LARGE = 6 << 20
"""More than a gateway takes."""
CHUNKED = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"


def chat(**fields: Any) -> bytes:
    """The body of a small chat."""
    messages = [{"role": "user", "content": "Compute 12 + 30."}]
    return json.dumps({"model": "demo", "messages": messages, "max_tokens": 4, **fields}).encode()


def exchange(address: str, request: bytes, *, half_close: bool = False) -> int | None:
    """Send this; the status of the answer, None for a connection that is closed without one.

    Raises TimeoutError if nothing happens.
    """
    with connected(address, ANSWER_S) as connection:
        try:
            connection.sendall(request)
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


def run(address: str, each: int, seed: int) -> Counter[str]:
    """So many attacks of every kind, in turn; how often which ended in which status.

    Raises TimeoutError for a gateway that hangs.
    """
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for number in range(each):
        for name, (made, half_close) in ATTACKS.items():
            try:
                status = exchange(address, made(rng), half_close=half_close)
            except TimeoutError as error:
                raise TimeoutError(f"the gateway hangs: {name}, request {number}") from error
            seen[f"{name}: {status or 'closed'}"] += 1
        _leave(address, rng)
    return seen


def _flipped(rng: random.Random) -> bytes:
    body = bytearray(chat(temperature=0.5, stop=["a"], seed=1))
    for _ in range(rng.randint(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return bytes(body)


def _nested(rng: random.Random) -> bytes:
    depth = rng.choice([100, 1000, 100_000])
    return b'{"model":"demo","messages":' + b"[" * depth + b"]" * depth + b"}"


def _odd_value(rng: random.Random) -> bytes:
    fields = ["max_tokens", "n", "temperature", "top_p", "seed", "stop", "messages", "tts", "top_k"]
    values: list[object] = [10**30, -(10**30), -1, 0, 1e308, "x" * 1000, None, [], {}, [[]], True]
    values += ["\ud800", {"n": -1}]
    return chat(**{rng.choice(fields): rng.choice(values)})


def _odd_path(rng: random.Random) -> bytes:
    method = rng.choice(["GET", "POST", "DELETE", "TRACE", "OPTIONS", "PATCH"])
    paths = ["/../../etc/passwd", "/v1/models/%00", "//", "/page/" + "a" * 5000, "/page/../page.js"]
    return f"{method} {rng.choice(paths)} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


def _wrong_length(rng: random.Random) -> bytes:
    length = rng.choice(["-1", "abc", "99999999999999999999", "1, 2"])
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
    return head.encode() + chat()


def _two_lengths(rng: random.Random) -> bytes:
    """A body whose end two readers may see at two places."""
    second = rng.choice(["transfer-encoding: chunked", "content-length: 3"])
    return post(chat(), extra=f"{second}\r\n")


def _bad_chunks(rng: random.Random) -> bytes:
    size = rng.choice(["-1", "zz", "ffffffffffffffffff", "5;" + "x" * 20_000, ""])
    return f"{CHUNKED}\r\n{size}\r\nhello\r\n0\r\n\r\n".encode()


def _several(rng: random.Random) -> bytes:
    health = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    kinds = [post(chat(stream=True)), post(b"{"), health]
    return b"".join(rng.choice(kinds) for _ in range(rng.randint(2, 20)))


def _upgrade(rng: random.Random) -> bytes:
    other = rng.choice(["websocket", "h2c", "TLS/1.0"])
    extra = f"connection: upgrade\r\nupgrade: {other}\r\nexpect: 100-continue\r\n"
    return post(chat(), extra=extra)


def _cut(whole: bytes, rng: random.Random) -> bytes:
    return whole[: rng.randrange(1, len(whole))]


ATTACKS: dict[str, tuple[Bytes, bool]] = {
    "garbage": (lambda rng: rng.randbytes(rng.randint(1, 4000)) + b"\r\n\r\n", True),
    "a body cut short": (lambda rng: post(_cut(chat(stream=True), rng)), False),
    "flipped bytes": (lambda rng: post(_flipped(rng)), False),
    "odd values": (lambda rng: post(_odd_value(rng)), False),
    "not UTF-8": (lambda rng: post(b'{"model": "\xff\xfe"}'), False),
    "nested": (lambda rng: post(_nested(rng)), False),
    "odd paths and methods": (_odd_path, False),
    "wrong content-length": (_wrong_length, False),
    "two lengths": (_two_lengths, True),
    "bad chunks": (_bad_chunks, True),
    "pipelined": (_several, False),
    "upgrade": (_upgrade, True),
    "half closed": (lambda rng: _cut(post(chat(stream=rng.random() < 0.5)), rng), True),
    "half closed after the request": (lambda rng: post(chat()), True),
    "long header": (lambda rng: post(chat(), extra=f"x-long: {'y' * 200_000}\r\n"), False),
    "many headers": (
        lambda rng: post(chat(), extra="".join(f"x-{n}: 1\r\n" for n in range(2000))),
        False,
    ),
    "nothing wrong": (lambda rng: post(chat(stream=rng.random() < 0.5)), False),
}
"""What is sent, and whether the client then says that it sends no more."""
OVERSIZE: dict[str, bytes] = {
    "a length": post(chat(user="x" * LARGE)),
    "chunks": f"{CHUNKED}content-type: application/json\r\n\r\n".encode()
    + (b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n") * (LARGE // 65536)
    + b"0\r\n\r\n",
}
"""Bodies beyond the limit, by what says how long they are."""


def _leave(address: str, rng: random.Random) -> None:
    """Leave a stream after its first bytes."""
    with connected(address) as connection:
        body = chat(stream=True, max_tokens=64, model=rng.choice(["demo", "demo:beam-search"]))
        connection.sendall(post(body))
        connection.recv(rng.randint(1, 200))


def run_idle(address: str, count: int) -> None:
    """Open so many connections, which say nothing or half of a request, until they are closed.

    Raises AssertionError if a request beside them is not answered, or they stay open.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, count + 1000), most))
    connections = []
    try:
        for number in range(count):
            connection = connected(address)
            if number % 2:
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: ")
            connections.append(connection)
        deadline = time.monotonic() + CLOSED_WITHIN_S
        assert exchange(address, post(chat())) == 200
        left = connections
        while left and time.monotonic() < deadline:
            left = [connection for connection in left if not _closed(connection)]
            time.sleep(0.5)
        assert not left, f"{len(left)} of {count} idle connections are still open"
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
