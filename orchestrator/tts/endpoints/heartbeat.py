"""When a request is given up: once its engine or its server has been silent for too long.

Any sign of work counts for all requests in flight: an answer to another one, a token, a step of an
engine in a process of ours. So neither a long answer nor the time that a request waits behind
others is a failure. An answer in one piece (Triton's to a search; vLLM's, SGLang's and
trtllm-serve's by HTTP) gives no sign before it is complete: for these the limit is how long the
next of all answers may take.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import timeout
from typing import Any

from tts.base.errors import EndpointTimeout
from tts.build.spec import ANSWER_TIMEOUT_S


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
        """A context: its body ends with EndpointTimeout after a silence of the limit.

        The limit is at least `least_s` seconds. What was before the body does not count.
        """
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
