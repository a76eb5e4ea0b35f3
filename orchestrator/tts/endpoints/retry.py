"""When a request is sent again, and when it is given up.

Its answer depends on it alone, so asking twice changes nothing. A refused request fails at once.
One that found no server, lost it, or had no heartbeat for too long is sent again until it has
failed for PATIENCE_S, not counting the time in which a process of this machine starts the server
again: long enough for a server behind a load balancer to be replaced, and short enough for an
engine lost for good to end a run before its user gives up.

Any sign of work is a heartbeat for all requests in flight: an answer to another one, a token, a
step of an engine in a process of ours. An answer in one piece gives no sign before it is complete:
there the limit is how long the next of all answers may take.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import timeout
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tts.base.errors import EndpointTimeout, EndpointUnavailable
from tts.build.spec import ANSWER_TIMEOUT_S

PATIENCE_S = 60.0
"""From the first failure of a request to the last time it is sent again, at most."""
MOST_DEATHS = 3
"""An engine that has died this often without an answer in between would die again."""
FIRST_WAIT_S = 0.2
"""Before it is sent again for the first time; doubled each time, up to LONGEST_WAIT_S."""
LONGEST_WAIT_S = 5.0

T = TypeVar("T")


class AskedToWait(EndpointUnavailable):
    """A server that cannot answer now says for how long."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


async def retried(
    attempt: Callable[[], Awaitable[T]],
    comes_back: Callable[[], bool] = lambda: False,
    patience_s: float = PATIENCE_S,
) -> T:
    """The result of `attempt()`, which is called again after a failure that may pass.

    Raises the last EndpointUnavailable or EndpointTimeout once patience has run out, and any other
    error at once. While `comes_back()` says that the server is being started again, however long
    its engines load, patience does not begin; it may raise where that is of no use. Time is the
    event loop's, so it may be virtual.
    """
    now = asyncio.get_running_loop().time
    give_up: float | None = None
    wait = FIRST_WAIT_S
    while True:
        try:
            return await attempt()
        except (EndpointUnavailable, EndpointTimeout) as error:
            restarting = comes_back()
            if restarting or give_up is None:
                give_up = now() + patience_s
            pause = max(wait, error.seconds) if isinstance(error, AskedToWait) else wait
            if not restarting and now() + pause > give_up:
                raise
        await asyncio.sleep(pause)
        wait = min(2 * wait, LONGEST_WAIT_S)


class Restarts:
    """How often one server has died and was started again since it last answered."""

    def __init__(self, address: str, is_coming_back: Callable[[], bool]) -> None:
        """`is_coming_back`: whether a server that is gone is being started again."""
        self._address = address
        self._is_coming_back = is_coming_back
        self._down = False
        """Whether it was coming back when it was last asked after."""
        self._deaths = 0

    def look_again(self) -> None:
        """Note before a request whether a server that was coming back still is."""
        if self._down:
            self._down = self._is_coming_back()

    def reset(self) -> None:
        """Note that it has answered."""
        self._deaths = 0

    def comes_back(self) -> bool:
        """Whether it is worth waiting for; EndpointUnavailable if it dies again and again."""
        was_down, self._down = self._down, self._is_coming_back()
        self._deaths += self._down and not was_down
        if self._deaths >= MOST_DEATHS:
            raise EndpointUnavailable(
                f"The server at {self._address} has died {self._deaths} times without an answer.",
                hint="Its log, triton.log in the folder of the server, says why.",
            )
        return self._down


class Heartbeat:
    """Signs of work of an engine or a server, and how long none has come."""

    def __init__(self, who: str, limit_s: float = ANSWER_TIMEOUT_S) -> None:
        """`who` is its name in errors."""
        self.who = who
        self.limit_s = limit_s
        self.last_beat = -math.inf
        """When the last sign of work came, on the loop's clock."""

    def beat(self) -> None:
        """Note a sign of work now."""
        self.last_beat = asyncio.get_running_loop().time()

    def limited(self, least_s: float = 0.0) -> _Limited:
        """A context that ends with EndpointTimeout after a silence of the limit or of `least_s`."""
        return _Limited(self, max(self.limit_s, least_s))


class _Limited:
    """The wait for one answer."""

    __slots__ = ("_alarm", "_heartbeat", "_limit_s", "_loop", "_timeout")

    def __init__(self, heartbeat: Heartbeat, limit_s: float) -> None:
        self._heartbeat, self._limit_s = heartbeat, limit_s
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._alarm = self._loop.call_later(self._limit_s, self._ring)

    async def __aexit__(self, *error: Any) -> None:
        self._alarm.cancel()
        try:
            await self._timeout.__aexit__(*error)
        except TimeoutError:
            raise EndpointTimeout(
                f"{self._heartbeat.who} has answered nothing for {self._limit_s:g} s.",
                hint="If it is slow rather than stuck, raise answer_timeout_s in the deployment.",
            ) from None

    def _ring(self) -> None:
        now, due = self._loop.time(), self._heartbeat.last_beat + self._limit_s
        if due > now:  # others were answered meanwhile
            self._alarm = self._loop.call_at(due, self._ring)
        else:
            self._timeout.reschedule(now)
