"""The clients: so many at once, each sending its next request when the last is answered.

A process of its own, and a cheap one: HTTP over raw sockets, whose answers are not parsed. Reads a
Task as JSON from standard input and writes an Outcome to standard output.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time

import msgspec

_TEXT = re.compile(rb'"(?:content|text)": ?"[^"]')
_TOKENS = re.compile(rb'"completion_tokens": ?([0-9]+)')
_ENDS = b"\r\n0\r\n\r\n", b"data: [DONE]\n\n"
"""Ends of an answer in chunks, and of one without."""
_TIMEOUT_S = 300.0


class Task(msgspec.Struct):
    """What to send where."""

    port: int
    path: str
    in_flight: int
    bodies: list[str]
    """One for each request."""


class Seen(msgspec.Struct, array_like=True):
    """One answered request, in seconds since it was sent."""

    first: float
    """Until its first text."""
    whole: float
    tokens: int


class Outcome(msgspec.Struct):
    """All requests of a task."""

    wall_s: float
    answered_requests: list[Seen]
    failures: list[str]


async def ask(task: Task, body: bytes) -> Seen:
    """Send a request over a connection of its own, and read its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", task.port, limit=1 << 20)
    try:
        sent_at = time.perf_counter()
        writer.write(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (task.path.encode(), len(body), body)
        )
        first, data = 0.0, bytearray()
        while not data.endswith(_ENDS):
            piece = await reader.read(1 << 18)
            data += piece
            if not first and _TEXT.search(data):
                first = time.perf_counter()
            if not piece or not data.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(bytes(data[:500]).decode(errors="replace"))
        if not first:
            raise ConnectionError("an answer without text")
        tokens = _TOKENS.findall(data)
        return Seen(
            first - sent_at, time.perf_counter() - sent_at, int(tokens[-1]) if tokens else 0
        )
    finally:
        writer.close()


async def carry_out(task: Task) -> Outcome:
    """Send the requests of a task."""
    outcome, rest = Outcome(0.0, [], []), iter(task.bodies)

    async def work() -> None:
        for body in rest:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    outcome.answered_requests.append(await ask(task, body.encode()))
            except OSError as error:  # of a connection, or no answer in time
                outcome.failures.append(str(error)[:500] or "no answer in time")

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(task.in_flight)))
    outcome.wall_s = time.perf_counter() - began
    return outcome


def main() -> None:
    """Carry out one task."""
    import uvloop

    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(carry_out(task))))


if __name__ == "__main__":
    main()
