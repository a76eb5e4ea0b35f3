"""Where a text ends that comes in pieces: at the first of its stop strings. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes a text on up to the stop string that ends first; the earlier one of two."""

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        """`include`: the stop string is passed on, too. Stop strings are not empty."""
        self._stops = tuple(stops)
        self._include = include
        self._held = ""
        """The end of the text so far that may be the beginning of a stop string."""
        self.stopped: str | None = None
        """The stop string that has ended the text."""

    def push(self, text: str) -> str:
        """What of the text may be passed on by now; nothing once it has ended."""
        if not self._stops:
            return text
        if self.stopped is not None:
            return ""
        text = self._held + text
        end, begin, stop = min(
            (
                (found + len(stop), found, stop)
                for stop in self._stops
                if (found := text.find(stop)) >= 0
            ),
            default=(-1, -1, ""),
        )
        if end >= 0:
            self.stopped, self._held = stop, ""
            return text[: end if self._include else begin]
        held = self._may_begin(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """What was held back and is no stop string, as the text ends here."""
        held, self._held = self._held, ""
        return held

    def _may_begin(self, text: str) -> int:
        """Length of the longest end of `text` that is the beginning of a stop string."""
        longest = min(max(map(len, self._stops)) - 1, len(text))
        for length in range(longest, 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
