"""The one way in which completions, chats and responses are answered: whole, or as they come."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..exchange import Exchange
from ..openai.answers import AnswerPart, Encoder

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which clients skip."""


async def respond(
    exchange: Exchange, encoder: Encoder, parts: AsyncGenerator[AnswerPart, None], *, stream: bool
) -> None:
    """Respond with parts, of which the last has the answer's end; what they raise ends it.

    The first of them begins a stream; one with nothing to tell keeps it alive.
    """
    record = exchange.record
    record.stream = stream
    choices: dict[int, AnswerPart] = {}
    async with aclosing(parts):
        async for part in parts:
            if stream:
                await _tell(exchange, encoder, part)
                continue
            if part.index in choices:
                choices[part.index].extend(part)
            else:
                choices[part.index] = part
            if part.end:
                record.t4 = time.monotonic()
                told = [choices[index] for index in sorted(choices)]
                await exchange.respond(encoder.whole(told, part.end))


async def _tell(exchange: Exchange, encoder: Encoder, part: AnswerPart) -> None:
    if exchange.record.t5 is None:
        exchange.record.t4 = time.monotonic()
        await exchange.start_events()
    data = encoder.events(part)
    if part.end:
        await exchange.end_events(data)
    else:
        await exchange.event(data or KEEP_ALIVE)
