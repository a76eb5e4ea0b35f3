"""One choice of an answer while it grows: from new tokens to text that may be sent. Pure."""

from __future__ import annotations

from typing import Literal, Protocol

from tts.endpoints.base import NewTokens

from .detokenizer import Detokenizer
from .stop_strings import StopStrings

Finish = Literal["stop", "length"]


class TextFilter(Protocol):
    """What a text passes through on its way out (see safety.filters)."""

    def feed(self, text: str) -> str:
        """Take the next part; what may be sent now."""

    def end(self) -> str:
        """The text is complete: what is left to send."""


class Choice:
    """Text, tokens and the reason to end of one sample."""

    def __init__(
        self,
        index: int,
        detokenizer: Detokenizer,
        stops: StopStrings,
        limit: int,
        ends: frozenset[int] = frozenset(),
        text_filter: TextFilter | None = None,
    ) -> None:
        """`limit` is the most tokens it may have; `ends` end it and are no part of its text."""
        self.index = index
        self.tokens = 0
        self.finish: Finish | None = None
        self._detokenizer = detokenizer
        self._stops = stops
        self._limit = limit
        self._ends = ends
        self._filter = text_filter

    def take(self, new: NewTokens) -> str:
        """The text that new tokens add, as far as it may be sent."""
        ids = new.ids
        self.tokens += len(ids)
        ended = new.final and bool(ids) and ids[-1] in self._ends
        text = self._detokenizer.push(ids[:-1] if ended else ids)
        if new.final:
            text += self._detokenizer.finish()
        text = self._stops.push(text)
        if self._stops.stopped is not None:
            self.finish = "stop"
        elif new.final:
            text += self._stops.finish()
            self.finish = "length" if self.tokens >= self._limit and not ended else "stop"
        if self._filter:
            text = self._filter.feed(text)
            if self.finish:
                text += self._filter.end()
        return text
