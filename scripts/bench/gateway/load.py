"""The clients: so many at once, each sending its next request when the last is answered.

A process of its own, and a cheap one: HTTP over raw sockets without parsing JSON, gRPC without
parsing protobuf. Reads a Task as JSON from standard input and writes an Outcome to standard output.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

_CONTENT = re.compile(rb'"content": ?"[^"]')
_OWN = re.compile(rb'"gateway_ms": ?([0-9.]+)')
_TOKENS = re.compile(rb'"completion_tokens": ?([0-9]+)')
_END_OF_CHUNKS = b"\r\n0\r\n\r\n"
_FINAL = b"triton_final_response\x12\x02\x08\x01"
"""In an InferResponse, the parameter with the value true."""


class Task(msgspec.Struct):
    """What to send where."""

    kind: str
    """http or grpc."""
    address: str
    concurrency: int
    requests: int
    bodies: list[str]
    """Bodies of requests, sent in turn: JSON, or messages in base64."""
    timeout_s: float = 60.0


class Seen(msgspec.Struct, array_like=True):
    """One answered request, in seconds since it was sent."""

    first: float
    """Until its first text."""
    whole: float
    tokens: int
    gap: float
    """The longest wait between two pieces."""
    own_ms: float
    """What the gateway says that it took by itself; 0 without a gateway."""


class Outcome(msgspec.Struct):
    """All requests of a task."""

    wall_s: float
    seen: list[Seen]
    failures: list[str]


Ask = Callable[[bytes], Coroutine[Any, Any, Seen]]


class HttpClient:
    """One connection, kept open."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, body: bytes) -> Seen:
        """Send a request and read its answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        sent = last = time.perf_counter()
        first = gap = 0.0
        data = bytearray()
        while not self._complete(data):
            piece = await reader.read(262144)
            if not piece:
                self._streams = None
                raise ConnectionError(f"closed after {bytes(data[:200])!r}")
            now = time.perf_counter()
            data += piece
            if first:
                gap = max(gap, now - last)
                last = now
            elif _CONTENT.search(data):
                first = last = now
        if not data.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(bytes(data[:300]).decode(errors="replace"))
        own = _OWN.search(data)
        tokens = _TOKENS.search(data)
        return Seen(
            first - sent,
            time.perf_counter() - sent,
            int(tokens[1]) if tokens else 0,
            gap,
            float(own[1]) if own else 0.0,
        )

    def drop(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams:
            self._streams[1].close()
            self._streams = None

    @staticmethod
    def _complete(data: bytearray) -> bool:
        if data.startswith(b"HTTP/1.1 200"):
            return data.endswith(_END_OF_CHUNKS)
        head = data.find(b"\r\n\r\n")
        if head < 0:
            return False
        length = re.search(rb"(?i)content-length: ?([0-9]+)", data[:head])
        if length is None:
            return data.endswith(_END_OF_CHUNKS)
        return len(data) >= head + 4 + int(length[1])


class GrpcClient:
    """One ModelStreamInfer call, kept open, on the channel that all share."""

    def __init__(self, channel: Any, tokens: int) -> None:
        self._stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        self._tokens = tokens
        self._call: Any = None

    async def ask(self, body: bytes) -> Seen:
        """Send a request and read its answers."""
        if self._call is None:
            self._call = self._stream()
        await self._call.write(body)
        sent = last = time.perf_counter()
        first = gap = 0.0
        while True:
            answer = await self._call.read()
            if not isinstance(answer, bytes):
                self._call = None
                raise ConnectionError("the stream ended")
            if answer.startswith(b"\x0a"):  # error_message
                raise ConnectionError(answer[:300].decode(errors="replace"))
            now = time.perf_counter()
            if first:
                gap = max(gap, now - last)
            else:
                first = now
            last = now
            if _FINAL in answer:
                return Seen(first - sent, now - sent, self._tokens, gap, 0.0)

    def drop(self) -> None:
        """End the stream; the next request opens another."""
        if self._call is not None:
            self._call.cancel()
            self._call = None


async def carry_out(task: Task, tokens: int) -> Outcome:
    """Send the requests of a task."""
    if task.kind == "http":
        bodies = [body.encode() for body in task.bodies]
        return await _all(task, bodies, lambda: HttpClient(task.address))
    import base64

    import grpc

    bodies = [base64.b64decode(body) for body in task.bodies]
    async with grpc.aio.insecure_channel(task.address) as channel:
        return await _all(task, bodies, lambda: GrpcClient(channel, tokens))


async def _all(task: Task, bodies: list[bytes], new_client: Callable[[], Any]) -> Outcome:
    outcome = Outcome(0.0, [], [])
    clients = [new_client() for _ in range(task.concurrency)]
    await asyncio.gather(*(client.ask(bodies[0]) for client in clients[:4]))  # warm
    left = iter(range(task.requests))

    async def work(client: Any) -> None:
        for number in left:
            try:
                body = bodies[number % len(bodies)]
                outcome.seen.append(await asyncio.wait_for(client.ask(body), task.timeout_s))
            except OSError as error:  # of a connection, or no answer in time
                outcome.failures.append(str(error)[:300] or "no answer in time")
                client.drop()

    begun = time.perf_counter()
    await asyncio.gather(*map(work, clients))
    outcome.wall_s = time.perf_counter() - begun
    for client in clients:
        client.drop()
    return outcome


def main() -> None:
    """Carry out one task."""
    import uvloop

    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    tokens = int(sys.argv[1])
    outcome = uvloop.run(carry_out(task, tokens))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
