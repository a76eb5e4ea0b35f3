"""Searches while they run: steps so far, the best answer so far, and whoever listens.

The same search asked for twice is one search: whoever retries joins the one that runs.

key ──► RunningSearch ◄── listener, listener
             │ the last one goes: it is cancelled on the engines, at once; or a minute later
             │ if the client has named it (Idempotency-Key), who may come back for it
             ▼
          result, kept for a minute
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct

from tts.grading import extract_answer
from tts.search import significant
from tts.session import AsyncSession, Result, Step, Usage
from tts.session.plan import Plan

R = TypeVar("R")
S = TypeVar("S", bound="RunningSearch[Any]")

FLUSH_S = 0.1
"""Between two reports of progress: a search of many beams has hundreds of steps a second."""
KEEP_S = 60.0
"""How long the result of a search is kept, and a named search that nobody listens to goes on."""
MAX_RESULTS = 256
"""Results that are kept at a time; the oldest go first."""
MAX_STEPS = 100_000
"""Steps of all kept results together: each has its tree, about a kilobyte a step."""


class StepNote(Struct):
    """A step as a stream tells it: first when it is written, again with its score."""

    node: tuple[int, ...]
    text: str | None
    """None where it was told before, or must not be."""
    score: float | None = None


class Best(Struct, frozen=True):
    """The best answer so far."""

    answer: str
    score: float | None = None
    votes: int | None = None


class RunningSearch(Generic[R]):
    """One search, for any number of listeners."""

    def __init__(self, solve: Callable[[RunningSearch[R]], Coroutine[Any, Any, R]]):
        """`solve` is given this search, to tell it of its steps and its replica; starts at once."""
        self.listeners = 0
        self.replica: str | None = None
        """Where its tree is; None: nowhere yet."""
        self.has_name = False
        """Whether a client has given it a name to come back for it."""
        self.best: Best | None = None
        self.usage: Usage | None = None
        """The engines' work for it, when it has ended; None for one that has no tree."""
        self._votes: Counter[str] = Counter()
        self._steps: list[Step] = []
        self._changed = asyncio.Event()
        self.task = asyncio.ensure_future(solve(self))
        self.task.add_done_callback(self._end)

    @property
    def failed(self) -> bool:
        """Whether it has ended without a result."""
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)

    @property
    def size(self) -> int:
        """Steps so far, each told twice where it has a score."""
        return len(self._steps)

    @property
    def tokens(self) -> int:
        """All that was generated, once it has ended; before that, what its steps so far have."""
        if self.usage:
            return self.usage.tokens
        nodes = [
            step.tree.get(step.node) for step in self._steps if step.score is None and step.tree
        ]
        return sum(len(node.thought.token_ids) for node in nodes if node and node.thought)

    async def progress(self, keep_alive_s: float) -> AsyncGenerator[list[Step], None]:
        """New steps until the search ends; an empty list after so many seconds without."""
        reported = 0
        while not self.task.done() or reported < len(self._steps):
            if reported == len(self._steps):
                self._changed.clear()
                waiting = asyncio.ensure_future(self._changed.wait())
                ready, _ = await asyncio.wait(
                    {waiting, self.task}, timeout=keep_alive_s, return_when=asyncio.FIRST_COMPLETED
                )
                waiting.cancel()
                if not ready:
                    yield []
                continue
            new = self._steps[reported:]
            reported += len(new)
            yield new
            if not self.task.done():
                await asyncio.wait({self.task}, timeout=FLUSH_S)

    async def wait_for_end(self) -> None:
        """Wait until it has ended, if it was cancelled."""
        if self.task.cancelling():
            await asyncio.wait({self.task})

    async def result(self) -> R:
        """The result; raises the error that ended it. Cancelling the wait does not end it."""
        return await asyncio.shield(self.task)

    def take(self, step: Step) -> None:
        """Tell listeners of a step."""
        self._steps.append(step)
        self._compare(step)
        self._changed.set()

    def _end(self, task: asyncio.Task[R]) -> None:
        if not task.cancelled():
            task.exception()  # seen, whether or not somebody listens
        self._changed.set()

    def _compare(self, step: Step) -> None:
        """Keep the best answer: by score where there are scores, else by votes."""
        node = step.tree.get(step.node) if step.tree else None
        if node is None or node.thought is None or node.thought.goes_on:
            return
        assert step.tree is not None
        answer = extract_answer(step.tree.text(step.node))
        if answer is None:
            return
        if step.score is not None:
            score = significant(step.score)
            if self.best is None or self.best.score is None or score > self.best.score:
                self.best = Best(answer, score=score)
        elif self.best is None or self.best.score is None:
            self._votes[answer] += 1
            ((most, votes),) = self._votes.most_common(1)
            self.best = Best(most, votes=votes)


def begin_search(session: AsyncSession, plan: Plan) -> RunningSearch[Result]:
    """Begin a session's search."""

    def solve(search: RunningSearch[Result]) -> Coroutine[Any, Any, Result]:
        on_server, on_usage = (partial(setattr, search, name) for name in ("replica", "usage"))
        watched = replace(plan, on_step=search.take, on_server=on_server, on_usage=on_usage)
        return session.solve_planned(watched)

    return RunningSearch(solve)


class RunningSearches:
    """Searches that run or have just ended, by what makes two requests the same."""

    def __init__(self) -> None:
        self._searches: dict[Hashable, RunningSearch[Any]] = {}

    @contextmanager
    def joined(self, key: Hashable, start: Callable[[], S], *, has_name: bool) -> Iterator[S]:
        """The search of that key, or one that starts, with a listener more while the block lasts.

        A search without listeners is ended: at once, or a minute later if a client has named it.
        """
        search = cast(S | None, self._searches.get(key))
        if search is None or search.failed:
            self._make_room()
            search = self._searches[key] = start()
            search.task.add_done_callback(lambda _: self._forget_later(key, search))
        search.has_name = search.has_name or has_name
        search.listeners += 1
        try:
            yield search
        finally:
            search.listeners -= 1
            if search.listeners or search.task.done():
                pass
            elif search.has_name:
                asyncio.get_running_loop().call_later(KEEP_S, self._end_unheard, key, search)
            else:
                self._end_unheard(key, search)

    def _end_unheard(self, key: Hashable, search: RunningSearch[Any]) -> None:
        if not search.listeners and not search.task.done():
            search.task.cancel()
            self._forget(key, search)

    def _forget_later(self, key: Hashable, search: RunningSearch[Any]) -> None:
        if search.failed:
            self._forget(key, search)
            return
        self._make_room()
        asyncio.get_running_loop().call_later(KEEP_S, self._forget, key, search)

    def _forget(self, key: Hashable, search: RunningSearch[Any]) -> None:
        if self._searches.get(key) is search:
            del self._searches[key]

    def _make_room(self) -> None:
        """Let the oldest results go that are too many, or too large together."""
        keys = [key for key, search in self._searches.items() if search.task.done()]
        steps = sum(self._searches[key].size for key in keys)
        for place, key in enumerate(keys):
            if len(keys) - place <= MAX_RESULTS and steps <= MAX_STEPS:
                break
            steps -= self._searches.pop(key).size
