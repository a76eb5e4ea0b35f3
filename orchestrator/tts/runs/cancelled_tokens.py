"""What cancelled requests had generated, which the client does not see: an estimate."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from .records import RequestRecord

_EACH_SIDE = 8  # answered requests, sent before and after a cancelled one, that it is compared with


@dataclass(slots=True)
class _Cut:
    """A cancelled request, with the answered ones sent before it and, one by one, after it."""

    seconds: float
    near: list[RequestRecord]
    wanted: int = _EACH_SIDE
    """How many are still to come."""


class CancelledTokens:
    """Estimates cancelled generator requests, given in the order of sending like answered ones.

    One is taken to have generated as fast as the answered ones that were sent nearest to it.
    """

    def __init__(self) -> None:
        self.estimate = 0.0
        """Tokens; it lacks the last few requests before `finish`."""
        self._before: deque[RequestRecord] = deque(maxlen=_EACH_SIDE)
        self._cut: list[_Cut] = []

    def answered(self, request: RequestRecord) -> None:
        """The next request was answered."""
        for cut in self._cut:
            cut.near.append(request)
            cut.wanted -= 1
        if self._cut and not self._cut[0].wanted:  # all that were cut at the same place are first
            done = [cut for cut in self._cut if not cut.wanted]
            self._cut = self._cut[len(done) :]
            self._add(done)
        self._before.append(request)

    def cancelled(self, request: RequestRecord) -> None:
        """The next request was cancelled."""
        self._cut.append(_Cut(request.seconds, list(self._before)))

    def finish(self) -> None:
        """There are no more requests."""
        done, self._cut = self._cut, []
        self._add(done)

    def _add(self, done: Iterable[_Cut]) -> None:
        for cut in done:
            busy = sum(other.seconds for other in cut.near)
            tokens = sum(other.tokens or 0 for other in cut.near)
            self.estimate += cut.seconds * tokens / busy if busy > 0 else 0.0
