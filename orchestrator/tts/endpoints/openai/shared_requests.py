"""Calls that go as one request: samples whose seeds count up, prompts whose labels are read.

Which calls meet is a matter of timing; their answers are not: each is that of a request of its own,
as the server has shown when it was probed. Each is there when its own sample or prompt ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

from ..together import TickBatcher
from . import answers
from .dialects import Ask, Body, Dialect, Labels, LogProbs, Piece
from .http_client import Http

Call = TypeVar("Call")
Result = TypeVar("Result")
Waiting = Sequence[tuple[Call, asyncio.Future[Result | None]]]
"""Calls, and where the answer of each belongs."""


class SharedRequests(Generic[Call, Result]):
    """Gathers the calls of one key in a tick of the event loop."""

    def __init__(
        self,
        split: Callable[[Waiting[Call, Result]], Iterable[Waiting[Call, Result]]],
        send: Callable[[Waiting[Call, Result]], Awaitable[None]],
    ) -> None:
        """`split` says which calls of a key are one request, and `send` answers those of one.

        `send` must not raise; what it leaves unanswered is answered with None.
        """
        self._split, self._send = split, send
        self._batcher = TickBatcher(self._begin_all, sys.maxsize)
        self._running: set[asyncio.Task[None]] = set()

    async def answer(self, call: Call, key: Hashable = None) -> Result | None:
        """The answer to a call; None where a request of its own has to bring it."""
        answer: asyncio.Future[Result | None] = asyncio.get_running_loop().create_future()
        self._batcher.add(key, (call, answer))
        return await answer

    def _begin_all(
        self, key: Hashable, calls: list[tuple[Call, asyncio.Future[Result | None]]]
    ) -> None:
        for group in self._split(calls):
            self._begin(group)

    def _begin(self, group: Waiting[Call, Result]) -> None:
        futures = [answer for _, answer in group]
        if len(group) == 1:
            _leave(futures)
            return
        task = asyncio.ensure_future(self._send(group))
        self._running.add(task)

        def end(_: object) -> None:
            self._running.discard(task)
            _leave(futures)

        def cancel_unawaited(_: object) -> None:
            if all(answer.cancelled() for answer in futures):
                task.cancel()

        task.add_done_callback(end)
        for answer in futures:
            answer.add_done_callback(cancel_unawaited)


async def samples(
    http: Http, dialect: Dialect, model: str, ask: Ask
) -> AsyncGenerator[Piece, None]:
    """The `ask.samples` samples of one request, each whole and as soon as it ends.

    Raises EndpointError: also of a server that streams single tokens, which costs more than it
    saves.
    """
    latest = dict[int, Piece]()
    body = dialect.sample(model, ask)
    async with aclosing(_pieces(http, dialect, body, ask.samples)) as pieces:
        async for piece in pieces:
            if not (piece.ids or piece.end):
                continue  # it counts tokens
            if before := latest.get(piece.index):
                piece.ids = [*(before.ids or ()), *(piece.ids or ())]
                if not piece.end:
                    raise answers.bad("the end of a sample", piece.ids)
            if piece.end:
                yield piece
            latest[piece.index] = piece


async def label_rows(
    http: Http, dialect: Dialect, model: str, prompts: list[list[int]], labels: Labels
) -> AsyncGenerator[tuple[int, LogProbs], None]:
    """The place of each prompt of one request, with its labels, as they come; or EndpointError."""
    several = dialect.labels and dialect.labels.several
    assert several  # the capabilities say so
    body = several(model, prompts, labels)
    async with aclosing(_pieces(http, dialect, body, len(prompts))) as pieces:
        async for piece in pieces:
            if piece.top:
                yield piece.index, piece.top[0]


async def _pieces(
    http: Http, dialect: Dialect, body: Body, count: int
) -> AsyncGenerator[Piece, None]:
    async with aclosing(http.events(dialect.path, body)) as events:
        async for event in events:
            piece = dialect.piece(event)
            if piece.index >= count:
                raise answers.bad(f"one of {count} answers", piece.index)
            yield piece


def _leave(waiting: Iterable[asyncio.Future[Result | None]]) -> None:
    """Leave to requests of their own what has no answer."""
    for answer in waiting:
        if not answer.done():
            answer.set_result(None)
