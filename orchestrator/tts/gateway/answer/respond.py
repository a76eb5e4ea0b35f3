"""The one way in which completions, chats and responses are answered: whole, or as they come.

A search answers by what it sends meanwhile: one that the call begins, or the same one that runs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from tts.session import Step

from ..call import Call
from ..openai.answers import AnswerPart, Encoder
from ..openai.requests import Request
from ..output.running_searches import R, RunningSearch

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which clients skip."""


class Response:
    """The response to a call, in the form of its API."""

    def __init__(self, call: Call[Request], encoder: Encoder) -> None:
        self._exchange = call.exchange
        self._encoder = encoder
        self._stream = call.record.stream = call.request.stream
        self._choices: dict[int, AnswerPart] = {}
        """Choices so far of a response that is sent whole."""

    async def send(self, part: AnswerPart) -> None:
        """Send a part, the first of which begins a stream, or keep it for the whole."""
        exchange, record, encoder = self._exchange, self._exchange.record, self._encoder
        if self._stream:
            if record.t5 is None:
                record.t4 = time.monotonic()
                await exchange.start_events()
            send = exchange.end_events if part.end else exchange.event
            await send(encoder.events(part) or KEEP_ALIVE)
            return
        if part.index in self._choices:
            self._choices[part.index].extend(part)
        else:
            self._choices[part.index] = part
        if part.end:
            record.t4 = time.monotonic()
            choices = [self._choices[index] for index in sorted(self._choices)]
            await exchange.respond(encoder.whole(choices, part.end))


KEEP_ALIVE_S = 10.0
"""An idle stream gets a comment after this time, or proxies would end it."""


async def respond_by_search(
    call: Call[Request],
    encoder: Encoder,
    start: Callable[[], RunningSearch[R]],
    answer: Callable[[RunningSearch[R], R], Awaitable[AnswerPart]],
    progress: Callable[[RunningSearch[R], list[Step]], AnswerPart] = lambda *_: AnswerPart(),
) -> None:
    """Respond with the search that a call begins or joins: its `progress`, then its `answer`."""
    record, searches = call.record, call.service.searches
    name = call.exchange.header(b"idempotency-key")
    key = _identity(call, name)
    search: RunningSearch[R] | None = None
    try:
        with searches.joined(key, start, has_name=name is not None) as search:
            record.t2 = time.monotonic()
            response = Response(call, encoder)
            if call.request.stream:
                async with aclosing(search.progress(KEEP_ALIVE_S)) as all_steps:
                    async for steps in all_steps:
                        record.t3 = record.t3 or time.monotonic()
                        await response.send(progress(search, steps))
            result = await search.result()
            record.t3 = record.t3 or time.monotonic()
            await response.send(await answer(search, result))
    finally:
        if search:
            record.replica = search.replica
            if not record.answer_tokens + record.search_tokens:  # there is no result
                await search.wait_for_end()
                record.search_tokens = search.tokens
                if search.usage:
                    record.verifier_tokens = search.usage.verifier_tokens


def _identity(call: Call[Request], name: str | None) -> tuple[str | None, str, bytes]:
    """The facts by which two requests are the same: API key, path, name and body."""
    key = call.exchange.key.id if call.exchange.key else None
    what = call.exchange.path + (f"\0{name}" if name is not None else "")
    return key, what, hashlib.sha256(call.body).digest()
