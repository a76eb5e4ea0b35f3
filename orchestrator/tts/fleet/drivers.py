"""The drivers of a session's servers, which all searches on them share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from tts.driver import Driver
from tts.prompting import Models
from tts.runs.log import RunLog
from tts.scheduling import Policy

from .journal import Journal
from .replicas import EnginePair, Replicas

AHEAD_EACH = 2
"""Problems that wait in the driver of each of several servers, at most.

The next goes to whichever has started one first."""


class Drivers:
    """A driver for each replica, made when it gets its first problem; an async context manager.

    Leaving it cancels unsolved problems on the engines.
    """

    def __init__(
        self, models: Models, replicas: Replicas, policy: Policy, log: RunLog | None = None
    ) -> None:
        """With a log, every event is logged on its clock."""
        self.replicas = replicas
        self.journal = Journal(log)
        self.full: set[str] = set()
        """Replicas that have enough problems to start."""
        self.stops: set[Callable[[], None]] = set()
        """For each of the drivers' searches, the function that ends it with its result so far."""
        self._models = models
        self._policy = policy
        self._waiting: Counter[str] = Counter()
        """By replica: the problems that its driver has not started yet."""
        self._drivers: dict[EnginePair, Driver] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for driver in self._drivers.values():
            await driver.__aexit__(None, None, None)

    def of(self, pair: EnginePair) -> Driver:
        """The driver of a replica."""
        if pair not in self._drivers:
            server = pair.name if self.replicas.elastic else ""
            self._drivers[pair] = Driver(
                self._models,
                *pair.endpoints,
                self._share(),
                record=partial(self.journal.record, server=server),
                clock=self.journal.clock,
            )
        return self._drivers[pair]

    def count_waiting(self, pair: EnginePair, change: int) -> None:
        """Count a problem that begins (+1) or ceases (-1) to wait in the driver of a replica."""
        self._waiting[pair.name] += change
        if self.replicas.elastic and self._waiting[pair.name] >= AHEAD_EACH:
            self.full.add(pair.name)
        elif pair.name in self.full:
            self.full.discard(pair.name)
            self.replicas.wake()

    def stop(self) -> None:
        """End the running searches, each with its result so far; queued ones are left alone."""
        for stop in list(self.stops):
            stop()

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests in flight now on all replicas: generator, verifier."""
        loads = [driver.in_flight for driver in self._drivers.values()]
        return sum(load[0] for load in loads), sum(load[1] for load in loads)

    def _share(self) -> Policy:
        """The policy of one of several servers: problems in flight are those of all."""
        problems, servers = self._policy.problems, len(self.replicas)
        if problems is None or servers < 2:
            return self._policy
        return replace(self._policy, problems=math.ceil(problems / servers))
