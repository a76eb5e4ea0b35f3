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

CLOSED_WITHIN_S = 60.0
"""Until a connection that says nothing is closed."""
ANSWER_S = 45.0
"""A gateway that says nothing for so long hangs: its own limits are 10 and 30 seconds."""
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
Address = tuple[str, int]
Attack = Callable[[Address, random.Random], "int | None"]
LARGE = 6 << 20
"""More than a gateway takes."""


def post(body: bytes, path: str = "/v1/chat/completions", extra: str = "") -> bytes:
    """A whole request."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{extra}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def chat(**fields: Any) -> bytes:
    """The body of a small chat."""
    messages = [{"role": "user", "content": "Compute 12 + 30."}]
    return json.dumps({"model": "demo", "messages": messages, "max_tokens": 4, **fields}).encode()


def exchange(address: Address, *parts: bytes, half_close: bool = False) -> int | None:
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


def run(address: Address, count: int, seed: int) -> Counter[str]:
    """So many attacks of every kind; how often which ended in which status.

    Raises TimeoutError for a gateway that hangs.
    """
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for number in range(count):
        name, attack = ATTACKS[number % len(ATTACKS)]
        try:
            status = attack(address, rng)
        except TimeoutError as error:
            raise TimeoutError(f"the gateway hangs: {name}, request {number}") from error
        seen[f"{name}: {status or 'closed'}"] += 1
    return seen


def _garbage(address: Address, rng: random.Random) -> int | None:
    return exchange(address, rng.randbytes(rng.randint(1, 4000)) + b"\r\n\r\n", half_close=True)


def _body(make: Callable[[random.Random], bytes]) -> Attack:
    return lambda address, rng: exchange(address, post(make(rng)))


def _cut(rng: random.Random) -> bytes:
    body = chat(stream=True)
    return body[: rng.randrange(len(body))]


def _flipped(rng: random.Random) -> bytes:
    body = bytearray(chat(temperature=0.5, stop=["a"], seed=1))
    for _ in range(rng.randint(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return bytes(body)


def _nested(rng: random.Random) -> bytes:
    depth = rng.choice([100, 1000, 100_000])
    return b'{"model":"demo","messages":' + b"[" * depth + b"]" * depth + b"}"


def _odd_value(rng: random.Random) -> bytes:
    field = rng.choice(
        ["max_tokens", "n", "temperature", "top_p", "seed", "stop", "messages", "tts", "top_k"]
    )
    values: list[object] = [10**30, -(10**30), -1, 0, 1e308, "x" * 1000, None, [], {}, [[]], True]
    values += ["\ud800", {"n": -1}]
    return json.dumps(json.loads(chat()) | {field: rng.choice(values)}).encode()


def _oversize(address: Address, rng: random.Random) -> int | None:
    return exchange(address, post(chat(user="x" * LARGE)))


def _oversize_in_chunks(address: Address, rng: random.Random) -> int | None:
    head = (
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
        b"content-type: application/json\r\n\r\n"
    )
    chunk = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
    return exchange(address, head, *[chunk] * (LARGE // 65536), b"0\r\n\r\n")


def _long_headers(address: Address, rng: random.Random) -> int | None:
    return exchange(address, post(chat(), extra=f"x-long: {'y' * 200_000}\r\n"))


def _many_headers(address: Address, rng: random.Random) -> int | None:
    return exchange(address, post(chat(), extra="".join(f"x-{n}: 1\r\n" for n in range(2000))))


def _wrong_length(address: Address, rng: random.Random) -> int | None:
    length = rng.choice(["-1", "abc", "99999999999999999999", "1, 2"])
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
    return exchange(address, head.encode() + chat())


def _two_lengths(address: Address, rng: random.Random) -> int | None:
    """A body whose end two readers may see at two places."""
    second = rng.choice(["transfer-encoding: chunked", "content-length: 3"])
    return exchange(address, post(chat(), extra=f"{second}\r\n"), half_close=True)


def _bad_chunks(address: Address, rng: random.Random) -> int | None:
    size = rng.choice(["-1", "zz", "ffffffffffffffffff", "5;" + "x" * 20_000, ""])
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    return exchange(address, f"{head}{size}\r\nhello\r\n0\r\n\r\n".encode(), half_close=True)


def _pipelined(address: Address, rng: random.Random) -> int | None:
    several = [_whole(rng) for _ in range(rng.randint(2, 20))]
    return exchange(address, b"".join(several))


def _whole(rng: random.Random) -> bytes:
    return rng.choice(
        [post(chat(stream=True)), post(b"{"), b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"]
    )


def _upgrade(address: Address, rng: random.Random) -> int | None:
    other = rng.choice(["websocket", "h2c", "TLS/1.0"])
    extra = f"connection: upgrade\r\nupgrade: {other}\r\nexpect: 100-continue\r\n"
    return exchange(address, post(chat(), extra=extra), half_close=True)


def _half_closed(address: Address, rng: random.Random) -> int | None:
    whole = post(chat(stream=rng.random() < 0.5))
    return exchange(address, whole[: rng.randrange(1, len(whole))], half_close=True)


def _half_closed_after(address: Address, rng: random.Random) -> int | None:
    return exchange(address, post(chat()), half_close=True)


def _gone(address: Address, rng: random.Random) -> int | None:
    """A stream that is left after its first bytes."""
    with socket.create_connection(address, timeout=30) as connection:
        body = chat(stream=True, max_tokens=64, model=rng.choice(["demo", "demo:beam-search"]))
        connection.sendall(post(body))
        connection.recv(rng.randint(1, 200))
    return None


def _path(address: Address, rng: random.Random) -> int | None:
    path = rng.choice(
        ["/../../etc/passwd", "/v1/models/%00", "//", "/page/" + "a" * 5000, "/page/../page.js"]
    )
    method = rng.choice(["GET", "POST", "DELETE", "TRACE", "OPTIONS", "PATCH"])
    return exchange(address, f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())


def _good(address: Address, rng: random.Random) -> int | None:
    return exchange(address, post(chat(stream=rng.random() < 0.5)))


ATTACKS: list[tuple[str, Attack]] = [
    ("garbage", _garbage),
    ("a body cut short", _body(_cut)),
    ("flipped bytes", _body(_flipped)),
    ("odd values", _body(_odd_value)),
    ("not UTF-8", _body(lambda rng: b'{"model": "\xff\xfe"}')),
    ("nested", _body(_nested)),
    ("odd paths and methods", _path),
    ("wrong content-length", _wrong_length),
    ("two lengths", _two_lengths),
    ("bad chunks", _bad_chunks),
    ("pipelined", _pipelined),
    ("upgrade", _upgrade),
    ("half closed", _half_closed),
    ("half closed after the request", _half_closed_after),
    ("left in the middle", _gone),
    ("long header", _long_headers),
    ("many headers", _many_headers),
    ("nothing wrong", _good),
]
LARGE_ATTACKS: list[tuple[str, Attack]] = [
    ("oversize", _oversize),
    ("oversize, chunked", _oversize_in_chunks),
]


def run_large(address: Address, count: int, seed: int) -> Counter[str]:
    """Bodies beyond the limit, so many of each kind."""
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for name, attack in LARGE_ATTACKS * count:
        seen[f"{name}: {attack(address, rng) or 'closed'}"] += 1
    return seen


def run_idle(address: Address, count: int) -> dict[str, float]:
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
