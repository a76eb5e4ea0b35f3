"""Calls that differ in their seeds alone, sent as one request where the seeds count up.

Which calls meet is a matter of timing; their answers are not: each is that of a request of its own,
as the server has shown when it was probed. Each is there when its own sample ends.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import fields
from operator import attrgetter

from ..base import GenerateCall
from . import answers
from .dialects import Ask, Dialect, Piece
from .http_client import Http

Answer = asyncio.Future[list[int] | None]
Draw = Callable[[GenerateCall, Sequence[Answer]], Awaitable[None]]
"""Answers samples of a call, whose seed is the first one's."""

_same = attrgetter(
    *(each.name for each in fields(GenerateCall) if each.name not in ("input_ids", "seed"))
)


class Siblings:
    """Gathers what is called in one turn of the event loop."""

    def __init__(self, draw: Draw) -> None:
        """`draw` must not raise; what it leaves unanswered is answered with None."""
        self._draw = draw
        self._waiting: defaultdict[object, list[tuple[GenerateCall, Answer]]] = defaultdict(list)
        self._drawn: set[asyncio.Task[None]] = set()

    async def ids(self, call: GenerateCall) -> list[int] | None:
        """The sample; None where a request of its own has to bring it."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._send)
        answer: Answer = loop.create_future()
        self._waiting[call.input_ids.tobytes(), _same(call)].append((call, answer))
        return await answer

    def _send(self) -> None:
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for calls in waiting:
            calls.sort(key=lambda each: each[0].seed)
            start = 0
            for end in range(1, len(calls) + 1):
                if end == len(calls) or calls[end][0].seed != calls[end - 1][0].seed + 1:
                    self._begin(calls[start][0], [answer for _, answer in calls[start:end]])
                    start = end

    def _begin(self, first: GenerateCall, waiting: Sequence[Answer]) -> None:
        if len(waiting) == 1:
            _leave(waiting)
            return
        task = asyncio.ensure_future(self._draw(first, waiting))
        self._drawn.add(task)

        def end(_: object) -> None:
            self._drawn.discard(task)
            _leave(waiting)

        def cancel_unawaited(_: object) -> None:
            if all(answer.cancelled() for answer in waiting):
                task.cancel()

        task.add_done_callback(end)
        for answer in waiting:
            answer.add_done_callback(cancel_unawaited)


async def samples(
    http: Http, dialect: Dialect, model: str, ask: Ask
) -> AsyncGenerator[Piece, None]:
    """The `ask.samples` samples of one request, each whole and as soon as it ends.

    Raises EndpointError: also of a server that streams single tokens, which costs more than it
    saves.
    """
    latest = dict[int, Piece]()
    path, body = dialect.path, dialect.sample(model, ask)
    async with aclosing(http.events(path, body)) as events:
        async for event in events:
            piece = dialect.piece(event)
            if not (piece.ids or piece.end):
                continue  # it counts tokens
            if piece.index >= ask.samples:
                raise answers.bad(f"one of {ask.samples} samples", piece.index)
            if before := latest.get(piece.index):
                piece.ids = [*(before.ids or ()), *(piece.ids or ())]
                if not piece.end:
                    raise answers.bad("the end of a sample", event)
            if piece.end:
                yield piece
            latest[piece.index] = piece


def _leave(waiting: Sequence[Answer]) -> None:
    """Leave to requests of their own what has no answer."""
    for answer in waiting:
        if not answer.done():
            answer.set_result(None)
