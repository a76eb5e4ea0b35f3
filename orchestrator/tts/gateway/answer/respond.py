"""The one way in which completions, chats and responses are answered: whole, or as they come."""

from __future__ import annotations

import time

from ..call import Call
from ..openai.answers import AnswerPart, Encoder
from ..openai.requests import Request

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
        """Send a part, or keep it for the whole; the last one has the answer's end.

        The first of them begins a stream; one with nothing to tell keeps it alive.
        """
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
