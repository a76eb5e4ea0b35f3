"""Asking Triton, which never tells by itself, whether the clients of requests have gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

POLLING_SHARE = 0.02
"""Share of the asking thread's time that the questions may take."""


class Cancellations:
    """Questions whether requests were cancelled, asked one at a time.

    Each may be a round trip to the server, milliseconds on a busy machine: the one not asked for
    longest comes first, none more often than its period, and all of them together take a small
    share of the time. Most requests are answered before their turn. All of it in one thread.
    """

    def __init__(self, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._period_s = period_s
        self._clock = clock
        self._questions: dict[int, tuple[Callable[[], bool], float]] = {}
        """Ticket -> question, and when to ask it next; the next one first."""
        self._rest_until = 0.0

    def add(self, ticket: int, is_cancelled: Callable[[], bool]) -> None:
        """Ask for a request from now on."""
        self._questions[ticket] = is_cancelled, self._clock() + self._period_s

    def discard(self, ticket: int) -> None:
        """Ask for a request no more; it may not be known."""
        self._questions.pop(ticket, None)

    def due_s(self) -> float | None:
        """Seconds until the next question; None if there is none."""
        _, at = next(iter(self._questions.values()), (None, None))
        return None if at is None else max(0.0, max(at, self._rest_until) - self._clock())

    def ask(self) -> int | None:
        """Ask the next question, if it is due; the ticket of a request that was cancelled."""
        if self.due_s() != 0:
            return None
        ticket = next(iter(self._questions))
        is_cancelled, _ = self._questions.pop(ticket)
        began = self._clock()
        cancelled = answer_of(is_cancelled)
        now = self._clock()
        self._rest_until = now + (now - began) / POLLING_SHARE
        if cancelled:
            return ticket
        self.add(ticket, is_cancelled)
        return None


def answer_of(question: Callable[[], bool]) -> bool:
    """The answer of Triton or the engine; False, and a line in the log, if the question fails."""
    try:
        return question()
    except Exception:
        logger.exception("a question to Triton or to the engine failed")
        return False
