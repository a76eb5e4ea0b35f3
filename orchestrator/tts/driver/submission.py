"""A submitted problem, as its caller sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from tts.problem import Problem
from tts.runs.resume import ResumedWork
from tts.search import Generated, Scored, Search, SearchResult


@dataclass(frozen=True, slots=True)
class Solved:
    """A finished search; its result names the limit that ended it, if any."""

    problem: Problem
    search: Search
    result: SearchResult


@dataclass(eq=False)
class Submission:
    """Await it for the problem's result; cancelling the wait cancels the search.

    `number` is unique within its driver.

    Raises the TtsError that ended the search, DeadlineExceeded, or CancelledError.
    """

    number: int
    problem: Problem
    new_search: Callable[[], Search]
    priority: int
    resumed: ResumedWork
    on_result: Callable[[Generated | Scored], None] | None
    outcome: asyncio.Future[Solved]
    search: Search | None = field(default=None, init=False)
    """The search; None until the problem is started."""

    def __await__(self) -> Generator[Any, None, Solved]:
        return self.outcome.__await__()

    @property
    def done(self) -> bool:
        """Whether the search has ended: solved, failed or cancelled."""
        return self.outcome.done()

    def cancel(self) -> None:
        """End the search; its requests in flight are cancelled on the engines."""
        self.outcome.cancel()
