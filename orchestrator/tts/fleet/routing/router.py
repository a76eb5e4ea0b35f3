"""Replicas that come and go, and the work that they are given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from .circuit import Breaker, Circuit
from .policies import PrefixAffinity, RoutingPolicy
from .replica import Lease, Replica


class Router:
    """Hands out work to replicas. Times are seconds on any one clock that does not go back.

    A caller takes a lease, does the work on its replica, and ends the lease with what it learnt
    about the replica's health. Whoever watches the replicas asks `to_try` for those that should be
    tried again, by a real request, and reports what came of it.
    """

    def __init__(self, policy: RoutingPolicy | None = None, breaker: Breaker | None = None) -> None:
        """By default by prefix affinity."""
        self._policy = policy or PrefixAffinity()
        self._breaker = breaker or Breaker()
        self._replicas: dict[str, Replica] = {}
        self._held: Counter[tuple[Replica, str]] = Counter()
        """Leases by replica and key."""
        self._leases: set[Lease] = set()

    @property
    def replicas(self) -> Sequence[Replica]:
        """In the order in which they were added."""
        return tuple(self._replicas.values())

    def __getitem__(self, name: str) -> Replica:
        """Raises KeyError."""
        return self._replicas[name]

    def add(self, name: str, group: str = "") -> Replica:
        """Use one more replica from now on; raises ValueError if there is one of that name."""
        if name in self._replicas:
            raise ValueError(f"There is a replica {name!r} already.")
        replica = Replica(name, group, circuit=Circuit(self._breaker))
        self._replicas[name] = replica
        return replica

    def drain(self, name: str, draining: bool = True) -> None:
        """Give it no new conversations, or some again; running ones go on."""
        self._replicas[name].draining = draining

    def remove(self, name: str) -> Replica:
        """Forget a replica; leases on it may still be ended."""
        return self._replicas.pop(name)

    def lease(
        self,
        now: float,
        key: str = "",
        *,
        avoid: Collection[str] = (),
    ) -> Lease | None:
        """A replica for a piece of work; None if none is usable now.

        Work of one `key` has a prefix in common. `avoid` names replicas that have failed at it. One
        whose circuit is not closed gets none: what may be back is tried by whoever asks `to_try`,
        at nobody's cost.
        """
        usable = [
            each
            for each in self._replicas.values()
            if each.name not in avoid
            and (not each.draining or (key and self._held[each, key] > 0))
            and each.circuit.state(now) == "closed"
        ]
        if not usable:
            return None
        replica = self._policy.pick(usable, key, len(self._leases) + 1)
        replica.outstanding += 1
        replica.given += 1
        lease = Lease(replica, key)
        self._leases.add(lease)
        self._held[replica, key] += 1
        return lease

    def end(self, lease: Lease, now: float, *, ok: bool | None = None) -> None:
        """The work has ended. `ok`: whether its replica works; None if that is not known.

        It is unknown after a cancellation, or a refusal that was the request's own fault. Ending a
        lease twice does nothing.
        """
        if lease not in self._leases:
            return
        self._leases.remove(lease)
        replica = lease.replica
        replica.outstanding -= 1
        held = replica, lease.key
        self._held[held] -= 1
        if not self._held[held]:
            del self._held[held]
        if ok is not None:
            _learn(replica, now, ok)

    def report(self, name: str, now: float, *, ok: bool) -> None:
        """What a request of the watcher's own says of a replica's health."""
        _learn(self._replicas[name], now, ok)

    def trip(self, name: str, now: float) -> None:
        """A replica is known to be dead, as when its process has ended."""
        replica = self._replicas[name]
        replica.circuit, replica.trying = replica.circuit.tripped(now), False

    def to_try(self, now: float) -> list[Replica]:
        """Those with a half-open circuit that nothing is on the way to; each is named once.

        Whoever asks tries them, and reports.
        """
        found = [
            each
            for each in self.replicas
            if each.circuit.state(now) == "half-open" and not each.trying
        ]
        for each in found:
            each.trying = True
        return found


def _learn(replica: Replica, now: float, ok: bool) -> None:
    replica.trying = False
    replica.circuit = replica.circuit.succeeded() if ok else replica.circuit.failed(now)
