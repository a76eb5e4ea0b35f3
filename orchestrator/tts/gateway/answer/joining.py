"""The response to a call by a search: one that it begins, or the same one that runs already."""

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
from .respond import Response

KEEP_ALIVE_S = 10.0
"""An idle stream gets a comment after this time, or proxies would end it."""


async def respond_by_search(
    call: Call[Request],
    encoder: Encoder,
    start: Callable[[], RunningSearch[R]],
    answer: Callable[[RunningSearch[R], R], Awaitable[AnswerPart]],
    progress: Callable[[RunningSearch[R], list[Step]], AnswerPart] = lambda *_: AnswerPart(),
) -> None:
    """Respond with the search that a call begins, or with the same one that runs.

    `answer` makes the answer of its result, and may raise ApiError; `progress` what a stream tells
    of new steps.
    """
    record, searches = call.record, call.service.searches
    name = call.exchange.header(b"idempotency-key")
    key = _identity(call, name)
    with searches.joined(key, start, has_name=name is not None) as search:
        record.t2 = time.monotonic()
        response = Response(call, encoder)
        try:
            if call.request.stream:
                async with aclosing(search.progress(KEEP_ALIVE_S)) as all_steps:
                    async for steps in all_steps:
                        record.t3 = record.t3 or time.monotonic()
                        await response.send(progress(search, steps))
            result = await search.result()
            record.t3 = record.t3 or time.monotonic()
            await response.send(await answer(search, result))
        finally:
            record.replica = search.replica
            if not record.answer_tokens + record.search_tokens:  # nobody waited for its end
                record.search_tokens = search.tokens


def _identity(call: Call[Request], name: str | None) -> tuple[str | None, str, bytes]:
    """The facts by which two requests are the same: API key, path, name and body."""
    key = call.exchange.key.id if call.exchange.key else None
    what = call.exchange.path + (f"\0{name}" if name is not None else "")
    return key, what, hashlib.sha256(call.body).digest()
