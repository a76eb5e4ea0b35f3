"""The same search asked for twice is one search: whoever retries joins the one that runs.

key ──► RunningSearch ◄── listener, listener
             │ the last one goes: it is cancelled on the engines, at once; or a minute later
             │ if the client has named it (Idempotency-Key), who may come back for it
             ▼
          result, kept for a minute
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from .running_search import RunningSearch

KEEP_S = 60.0
"""How long the result of a search is kept, and a named search that nobody listens to goes on."""
MOST_KEPT = 256
"""Results that are kept at a time; the oldest go first."""
MOST_STEPS = 100_000
"""Steps of all kept results together: each has its tree, about a kilobyte a step."""


class Joining:
    """Searches that run or have just ended, by what makes two requests the same."""

    def __init__(self) -> None:
        self._searches: dict[Hashable, RunningSearch] = {}

    def join(
        self, key: Hashable, start: Callable[[], RunningSearch], *, named: bool
    ) -> RunningSearch:
        """The search of that key, listened to once more; `leave` it in the end."""
        search = self._searches.get(key)
        if search is None or search.failed:
            self._make_room()
            search = self._searches[key] = start()
            search.task.add_done_callback(lambda _: self._forget_later(key, search))
        search.named = search.named or named
        search.listeners += 1
        return search

    def leave(self, key: Hashable, search: RunningSearch) -> None:
        """One listener less; a search without any is ended."""
        search.listeners -= 1
        if search.listeners or search.task.done():
            return
        if search.named:
            asyncio.get_running_loop().call_later(KEEP_S, self._end_unheard, key, search)
        else:
            self._end_unheard(key, search)

    def _end_unheard(self, key: Hashable, search: RunningSearch) -> None:
        if not search.listeners and not search.task.done():
            search.task.cancel()
            self._forget(key, search)

    def _forget_later(self, key: Hashable, search: RunningSearch) -> None:
        if search.failed:
            self._forget(key, search)
            return
        self._make_room()
        asyncio.get_running_loop().call_later(KEEP_S, self._forget, key, search)

    def _forget(self, key: Hashable, search: RunningSearch) -> None:
        if self._searches.get(key) is search:
            del self._searches[key]

    def _make_room(self) -> None:
        """Let the oldest results go that are too many, or too large together."""
        ended = [key for key, search in self._searches.items() if search.task.done()]
        steps = sum(self._searches[key].size for key in ended)
        for place, key in enumerate(ended):
            if len(ended) - place < MOST_KEPT and steps <= MOST_STEPS:
                break
            steps -= self._searches.pop(key).size
