"""A closed loop: a list of requests sent with always as much in flight as a budget allows.

This is load without dependencies, for measuring what an engine can do; a search's requests go
through the scheduler instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tts.compat.aio import TaskGroup

Request = TypeVar("Request")


async def send_all(
    requests: Iterable[Request],
    cost: Callable[[Request], int],
    budget: int,
    send: Callable[[Request], Awaitable[object]],
) -> None:
    """Send all requests in this order, always as many at a time as the budget allows.

    `cost` is what a request takes of the budget while it is in flight, in the budget's unit
    (requests or tokens); one that costs more than the whole budget goes alone. The first failure is
    raised, as part of an exception group, after the other requests were cancelled.
    """
    in_flight = 0
    ended = asyncio.Event()

    async def send_one(request: Request) -> None:
        nonlocal in_flight
        await send(request)
        in_flight -= cost(request)
        ended.set()

    async with TaskGroup() as group:
        for request in requests:
            while in_flight and in_flight + cost(request) > budget:
                ended.clear()
                await ended.wait()
            in_flight += cost(request)
            group.create_task(send_one(request))
