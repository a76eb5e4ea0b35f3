"""The drivers of a solver: one for each server, whose events come together in one journal."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from tts.driver import Driver
from tts.prompting import Models
from tts.scheduling import Policy

from .endpoints import EndpointsOf
from .journal import Journal
from .replicas import EnginePair, Replicas


class Drivers:
    """A driver for each replica, from the first problem on that it is given."""

    def __init__(
        self,
        models: Models,
        replicas: Replicas,
        policy: Policy,
        journal: Journal,
        endpoints_of: EndpointsOf,
    ) -> None:
        self._models = models
        self._replicas = replicas
        self._policy = policy
        self._journal = journal
        self._endpoints_of = endpoints_of
        self._drivers: dict[EnginePair, Driver] = {}

    def of(self, pair: EnginePair) -> Driver:
        """The driver of a replica."""
        if pair not in self._drivers:
            several = self._replicas.elastic
            self._drivers[pair] = Driver(
                self._models,
                *self._endpoints_of(pair),
                self._share(),
                record=partial(self._journal.record_of, pair.name)
                if several
                else self._journal.record,
                clock=self._journal.clock,
            )
        return self._drivers[pair]

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests in flight now on all replicas: generator, verifier."""
        loads = [driver.in_flight for driver in self._drivers.values()]
        return sum(load[0] for load in loads), sum(load[1] for load in loads)

    @property
    def saturation_point(self) -> int | None:
        """That of the first driver that has seen one."""
        points = (driver.saturation_point for driver in self._drivers.values())
        return next((point for point in points if point is not None), None)

    async def aclose(self) -> None:
        """Cancel what is not solved, and wait until nothing is in flight."""
        for driver in self._drivers.values():
            await driver.__aexit__(None, None, None)

    def _share(self) -> Policy:
        """The policy of one of several servers: problems in flight are those of all."""
        problems, servers = self._policy.problems, len(self._replicas)
        if problems is None or servers < 2:
            return self._policy
        return replace(self._policy, problems=math.ceil(problems / servers))
