"""Replicas that come and go, and the work that they get."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic

from .circuit import Breaker, Circuit
from .policies import PrefixAffinity, R, RoutingPolicy


class Router(Generic[R]):
    """Hands out work to replicas. Times are seconds on any one clock that does not go back.

    A caller leases a replica, does the work there, and ends the lease with what the work says about
    the replica's health. Whoever watches the replicas asks `to_try` for those that should be tried
    again, by a real request, and reports what came of it.
    """

    def __init__(self, policy: RoutingPolicy | None = None, breaker: Breaker | None = None) -> None:
        """The default policy is prefix affinity."""
        self._policy = policy or PrefixAffinity()
        self._breaker = breaker or Breaker()
        self._replicas: dict[str, R] = {}

    @property
    def replicas(self) -> Sequence[R]:
        """All replicas, in the order in which they were added."""
        return tuple(self._replicas.values())

    def __getitem__(self, name: str) -> R:
        """Raises KeyError."""
        return self._replicas[name]

    def add(self, replica: R) -> R:
        """Use one more replica from now on; raises ValueError if there is one of that name."""
        if replica.name in self._replicas:
            raise ValueError(f"There is a replica {replica.name!r} already.")
        replica.circuit = Circuit(self._breaker)
        self._replicas[replica.name] = replica
        return replica

    def remove(self, name: str) -> R:
        """Forget a replica; leases on it may still be ended."""
        return self._replicas.pop(name)

    def lease(self, now: float, key: str = "", *, avoid: Collection[str] = ()) -> R | None:
        """A replica for a piece of work; None if none is usable now.

        Work of one `key` has a prefix in common. `avoid` names replicas that have failed at it. One
        whose circuit is not closed gets none: what may be back is tried by whoever asks `to_try`,
        at nobody's cost.
        """
        usable = [
            each
            for each in self._replicas.values()
            if each.name not in avoid
            and (not each.draining or (key and each.leases[key]))
            and each.circuit.state(now) == "closed"
        ]
        if not usable:
            return None
        concurrency = sum(each.outstanding for each in self._replicas.values()) + 1
        replica = self._policy.pick(usable, key, concurrency)
        replica.leases[key] += 1
        replica.total += 1
        return replica

    def end(self, replica: R, key: str, now: float, *, ok: bool | None = None) -> None:
        """Work of a key has ended. `ok`: whether its replica works; None if that is not known.

        It is unknown after a cancellation, or a refusal that was the request's own fault.
        """
        replica.leases -= {key: 1}
        if ok is not None:
            self.report(replica, now, ok=ok)

    def report(self, replica: R, now: float, *, ok: bool) -> None:
        """Record what a request says about a replica's health."""
        replica.trying = False
        replica.circuit = replica.circuit.succeeded() if ok else replica.circuit.failed(now)

    def trip(self, replica: R, now: float) -> None:
        """Record that a replica is dead, as when its process has ended."""
        replica.circuit, replica.trying = replica.circuit.tripped(now), False

    def to_try(self, now: float) -> list[R]:
        """The replicas with a half-open circuit that nothing is on the way to; each is named once.

        Whoever asks tries them, and reports.
        """
        due = [
            each
            for each in self.replicas
            if each.circuit.state(now) == "half-open" and not each.trying
        ]
        for each in due:
            each.trying = True
        return due
