"""A problem that a driver was given, and its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tts.base.errors import DeadlineExceeded
from tts.problem import Problem
from tts.search import Generated, ResumedWork, Scored, Search, SearchResult


@dataclass(eq=False)
class Submission:
    """Await it for the problem's result; cancelling the wait cancels the search.

    `number` is unique within its driver; older problems have smaller ones.

    Raises the TtsError that ended the search, DeadlineExceeded, or CancelledError.
    """

    number: int
    problem: Problem
    new_search: Callable[[], Search]
    priority: int
    resumed: ResumedWork
    on_result: Callable[[Generated | Scored], None] | None
    outcome: asyncio.Future[SearchResult]
    search: Search | None = field(default=None, init=False)
    """The search; None until the problem is started."""

    def __await__(self) -> Generator[Any, None, SearchResult]:
        return self.outcome.__await__()

    @property
    def done(self) -> bool:
        """Whether the search has ended: solved, failed or cancelled."""
        return self.outcome.done()

    def cancel(self) -> None:
        """End the search; its requests in flight are cancelled on the engines."""
        self.outcome.cancel()


def set_deadline(submission: Submission, seconds: float, stop: Callable[..., None]) -> None:
    """Stop a submission by `Driver.stop` after so many seconds, unless it has ended by then."""
    late = DeadlineExceeded(
        f"Problem {submission.problem.id} was not solved within {seconds:g} s.",
        hint="Give it more time, or a smaller n.",
    )
    loop = asyncio.get_running_loop()
    timer = loop.call_later(seconds, partial(stop, submission, late=late))
    submission.outcome.add_done_callback(lambda _: timer.cancel())
