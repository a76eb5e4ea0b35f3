"""Requests that belong together: the first failure ends all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

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
