"""The messages between the process of an engine and the process that opened it, over a stream
socket.

Each message is a MessagePack array after its length in four bytes, little-endian. Nothing is
unpickled; both ends are this package.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

from .generate_request import EngineLimits, GenerateRequest, Sequences
from .responses import OnResponse, Response
from .statistics import Statistics

_LENGTH_BYTES = 4
_RECEIVE_BYTES = 1 << 18
_MAX_WORDS = 8
"""Different lists of stop words that an engine keeps, at most: each may take 6 MB."""


class Open(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """First message to the engine: what to open."""

    engine_dir: Path
    limits: EngineLimits
    threads: int
    statistics_s: float
    """Least time between two reports of statistics, seconds."""
    iteration_log: Path | None
    tokenizer_dir: Path | None
    """Where the texts of the tokens are, for an engine that takes guides."""


class Words(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Stop words that many requests have, which a large vocabulary may have thousands of."""

    number: int
    """From 1; an earlier set of this number is no longer used."""
    stop_words: tuple[tuple[int, ...], ...]


class Submit(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A request to the engine, under a number of its own."""

    ticket: int
    request: GenerateRequest
    cold: bool
    """Whether to empty the prefix cache first."""
    words: int = 0
    """The number of its stop words; 0: the request itself has them."""


class Cancel(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """End a request with the tokens that it has."""

    ticket: int


class Opened(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """First message of the engine."""

    error: str | None
    """Why it could not be opened."""


class EngineReport(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """All that the engine has to say after a step."""

    responses: list[tuple[int, Response]]
    """Tickets and their responses, in order."""
    statistics: list[Statistics]
    """Statistics published since the last report, the oldest first."""


ToEngine = Open | Words | Submit | Cancel
FromEngine = Opened | EngineReport


def _to_plain(value: Any) -> bytes:
    if isinstance(value, np.ndarray):  # a prompt
        return value.tobytes()
    assert isinstance(value, Path)
    return os.fsencode(value)


def _from_plain(kind: Any, value: bytes) -> Any:
    return Path(os.fsdecode(value)) if kind is Path else np.frombuffer(value, np.int64)


OPENING = "opening"
"""The parameter of a Triton model that says what its engine is opened with."""


def encode_opening(opening: Open) -> str:
    """What opens an engine, as a model's configuration holds it."""
    return msgspec.json.encode(opening, enc_hook=str).decode()


def decode_opening(text: str) -> Open:
    """An opening, of a configuration; the interpreter of Triton's models takes names for ASCII."""
    return msgspec.json.decode(
        text, type=Open, dec_hook=lambda kind, path: Path(os.fsdecode(path.encode()))
    )


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_plain)


def encode(message: Any) -> bytes:
    """A message as it is sent, with its length."""
    data = _encoder.encode(message)
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data


class Submissions:
    """Requests as they are sent to one engine: stop words that many of them have go there once."""

    def __init__(self) -> None:
        self._words: dict[int, tuple[int, Sequences]] = {}
        """Lists of stop words that were sent, by their `id`: as they are kept, it stays theirs."""

    def encode(self, ticket: int, request: GenerateRequest, *, cold: bool) -> bytes:
        """What sends a request."""
        words = request.stop_words
        if not words:
            return encode(Submit(ticket, request, cold))
        introduction = b""
        if id(words) not in self._words:
            number = len(self._words) + 1
            if number > _MAX_WORDS:  # the oldest make room
                number, _ = self._words.pop(next(iter(self._words)))
            self._words[id(words)] = number, words
            introduction = encode(Words(number, words))
        number, _ = self._words[id(words)]
        request = replace(request, stop_words=())
        return introduction + encode(Submit(ticket, request, cold, number))


class Messages:
    """Messages of one type, from the bytes of a stream as they come in."""

    def __init__(self, kind: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(kind, dec_hook=_from_plain).decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The messages that these bytes complete, maybe none."""
        buffer = self._buffer
        buffer += data
        messages: list[Any] = []
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            body = start + _LENGTH_BYTES
            end = body + int.from_bytes(buffer[start:body], "little")
            if end > len(buffer):
                break
            messages.append(self._decode(bytes(buffer[body:end])))
            start = end
        del buffer[:start]
        return messages


class Accepting(Protocol):
    """An engine, as far as messages ask anything of it."""

    def accept(
        self, ticket: int, request: GenerateRequest, on_response: OnResponse, *, cold: bool
    ) -> None:
        """Take a request; `on_response` is called until a response is final, as exactly one is."""

    def cancel(self, ticket: int) -> None:
        """End a request with the tokens it has; does nothing if it ended already."""


class Commands:
    """What messages ask of an engine, as calls; the counterpart of `Submissions`."""

    def __init__(self, engine: Accepting, answer: Callable[[int, Response], None]) -> None:
        """`answer` gets tickets and their responses."""
        self._engine = engine
        self._answer = answer
        self._words: dict[int, Sequences] = {}

    def of(self, messages: Iterable[Any]) -> Iterator[Callable[[], None]]:
        """The calls, in order."""
        for message in messages:
            match message:
                case Words(number, words):
                    self._words[number] = words
                case Cancel(ticket):
                    yield partial(self._engine.cancel, ticket)
                case Submit(ticket, request, cold, number):
                    if number:
                        request = replace(request, stop_words=self._words[number])
                    answer = partial(self._answer, ticket)
                    yield partial(self._engine.accept, ticket, request, answer, cold=cold)


class MessageReader:
    """Messages of one type, taken from a socket."""

    def __init__(self, connection: socket.socket, kind: Any) -> None:
        self._connection = connection
        self._messages = Messages(kind)

    def take(self) -> list[Any] | None:
        """Messages that have come in whole, maybe none; None at the end of the stream.

        Waits for bytes if the socket does, and raises BlockingIOError if it does not. A message cut
        off by the end of the stream is dropped.
        """
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except ConnectionResetError:  # the other end died with something unread
            data = b""
        return self._messages.feed(data) if data else None
