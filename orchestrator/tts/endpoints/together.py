"""Work that belongs together: requests of one tick, and tasks that the first failure ends."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any, Generic, TypeVar

from tts.base.errors import TtsError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


async def together(running: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all, in order; the first failure cancels the others, and is raised."""
    tasks = [asyncio.ensure_future(each) for each in running]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def first_failure(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure to show of those that ended tasks together: a TtsError if there is one."""
    failure: BaseException = failures.subgroup(TtsError) or failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


class TickBatcher(Generic[K, T]):
    """Hands over the items added in a tick of the event loop when the tick has ended.

    All callbacks that are ready in a tick run in it, so the samples that follow an answer come
    together.
    """

    def __init__(self, hand_over: Callable[[K, list[T]], None], most: int) -> None:
        """`hand_over` gets the items of one key, in order, up to a limit at a time."""
        self._hand_over = hand_over
        self._most = most
        self._added: defaultdict[K, list[T]] = defaultdict(list)

    def add(self, key: K, item: T) -> None:
        """Hand this over with others of the tick."""
        if not self._added:
            asyncio.get_running_loop().call_soon(self._end)
        self._added[key].append(item)

    def _end(self) -> None:
        added, self._added = self._added, defaultdict(list)
        for key, items in added.items():
            for start in range(0, len(items), self._most):
                self._hand_over(key, items[start : start + self._most])
