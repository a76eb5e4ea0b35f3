"""Decisions which replica of a deployment gets which work. Pure: no IO, no clock.

`Router` hands out work to replicas that come and go; a policy chooses among those that can be used
(prefix affinity, least outstanding work, groups by concurrency); a circuit says when a replica that
fails is left alone, and when it is tried again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

CircuitState = Literal["closed", "open", "half-open"]


MAX_FAILURES = 3
"""Number of failures in a row that open a circuit."""
WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
"""Seconds until it is tried again, which double with each trial that fails, and their limit."""


@dataclass(frozen=True, slots=True)
class Circuit:
    """The record of one replica's failures. A value: each event makes another."""

    failures: int = 0
    """Number of failures in a row, while it is closed."""
    retry_at: float | None = None
    """The time from which on it may be tried again; None: it is closed."""
    wait_s: float = 0.0
    """Seconds for which it was opened."""

    def state(self, now: float) -> CircuitState:
        """The state at a time in seconds, on the clock of all calls."""
        if self.retry_at is None:
            return "closed"
        return "half-open" if now >= self.retry_at else "open"

    def failed(self, now: float) -> Circuit:
        """The record after a failure; old work on an open circuit says nothing new."""
        match self.state(now):
            case "open":
                return self
            case "half-open":
                return _opened(now, min(2 * self.wait_s, LONGEST_WAIT_S))
        if self.failures + 1 < MAX_FAILURES:
            return Circuit(self.failures + 1)
        return _opened(now, WAIT_S)

    def tripped(self, now: float) -> Circuit:
        """The record of a dead server, as when its process has ended: open at once."""
        return _opened(now, WAIT_S) if self.retry_at is None else self.failed(now)


def _opened(now: float, wait_s: float) -> Circuit:
    return Circuit(retry_at=now + wait_s, wait_s=wait_s)


@dataclass(eq=False)
class Replica:
    """One server of a deployment. Its router writes these fields, everybody may read them."""

    name: str
    _: KW_ONLY
    group: str = ""
    """Replicas alike in parallelism have the same: `tp8`, `tp1`."""
    leases: Counter[str] = field(default_factory=Counter)
    """Work in progress by what it belongs to: a conversation, a problem; empty: nothing."""
    total: int = 0
    """All work so far: of equally busy replicas the less used is taken."""
    draining: bool = False
    """Whether it gets nothing new, as before it is upgraded or removed."""
    circuit: Circuit = field(default_factory=Circuit)
    trying: bool = False
    """Whether what its half-open circuit waits for is on the way."""

    @property
    def outstanding(self) -> int:
        """Number of pieces of work in progress."""
        return self.leases.total()


R = TypeVar("R", bound=Replica)
PolicyName = Literal["prefix-affinity", "least-outstanding", "by-concurrency"]
THRESHOLD = 64
"""Concurrent requests at which ScaleLLM's best configuration changes."""
RETURN_SHARE = 0.75
"""The share of the threshold that the concurrency must fall below before it changes back."""
KEYS = 65_536
"""Conversations that are remembered; beyond, the one longest unused is forgotten."""


class RoutingPolicy(Protocol):
    """Chooses a replica. It may remember only its arguments."""

    def pick(self, usable: Sequence[R], key: str, concurrency: int) -> R:
        """One of `usable`, which is not empty, for work of `key` (empty: of nothing that stays).

        `concurrency` is the number of leases of all replicas, with the one to come.
        """


class LeastOutstanding:
    """The replica with the least outstanding work; of equal ones the one with the least so far."""

    def pick(self, usable: Sequence[R], key: str, concurrency: int) -> R:
        """The replica with the least outstanding work."""
        return min(usable, key=lambda each: (each.outstanding, each.total))


class PrefixAffinity:
    """Known keys stay on their replica, where their prefix is cached; new keys go by load."""

    def __init__(self) -> None:
        self._home: OrderedDict[str, str] = OrderedDict()
        """Key to name of a replica, the longest unused first."""

    def pick(self, usable: Sequence[R], key: str, concurrency: int) -> R:
        """The key's replica, or another one for good if that is not usable."""
        home = self._home.get(key)
        replica = next((each for each in usable if each.name == home), None)
        replica = replica or LeastOutstanding().pick(usable, key, concurrency)
        if key:
            self._home[key] = replica.name
            self._home.move_to_end(key)
            if len(self._home) > KEYS:
                self._home.popitem(last=False)
        return replica


class ByConcurrency:
    """Few requests go to the group of high tensor parallelism, many to that of many replicas.

    Tensor parallelism shortens each step, which is latency; replicas multiply steps, which is
    throughput; ScaleLLM (Yao et al., 2024, arXiv:2408.00008) routes by the load. It changes to
    `many` at the threshold, and back below RETURN_SHARE of it: between them it stays as it is, so
    that a concurrency that wavers moves no prefixes.
    """

    def __init__(self, few: str, many: str) -> None:
        """`few` and `many` are groups; inside one the choice is by affinity."""
        self._few, self._many = few, many
        self._within = PrefixAffinity()
        self.busy = False
        """Whether work goes to `many`."""

    @property
    def group(self) -> str:
        """The group that work goes to now."""
        return self._many if self.busy else self._few

    def pick(self, usable: Sequence[R], key: str, concurrency: int) -> R:
        """A replica of the group; any other while none of the group is usable."""
        if concurrency >= THRESHOLD:
            self.busy = True
        elif concurrency < RETURN_SHARE * THRESHOLD:
            self.busy = False
        of_group = [each for each in usable if each.group == self.group]
        return self._within.pick(of_group or usable, key, concurrency)


def routing_policy(name: PolicyName, *, few: str = "", many: str = "") -> RoutingPolicy:
    """A policy by its name; the groups are those of `by-concurrency`."""
    match name:
        case "prefix-affinity":
            return PrefixAffinity()
        case "least-outstanding":
            return LeastOutstanding()
        case "by-concurrency":
            return ByConcurrency(few, many)


class Router(Generic[R]):
    """Hands out work to replicas. Times are seconds on any one clock that does not go back.

    A caller leases a replica, does the work there, and ends the lease with what the work says about
    the replica's health. Whoever watches the replicas asks `to_try` for those that should be tried
    again, by a real request, and reports what came of it.
    """

    def __init__(self, policy: RoutingPolicy | None = None) -> None:
        """The default policy is prefix affinity."""
        self._policy = policy or PrefixAffinity()
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
        replica.circuit = Circuit()
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
        replica.circuit = Circuit() if ok else replica.circuit.failed(now)

    def trip(self, replica: R, now: float) -> None:
        """Record that a replica is dead, as when its process has ended."""
        replica.circuit, replica.trying = replica.circuit.tripped(now), False

    def to_try(self, now: float) -> list[R]:
        """Replicas with a half-open circuit, each named once: whoever asks tries and reports."""
        half_open = (each for each in self.replicas if each.circuit.state(now) == "half-open")
        due = [each for each in half_open if not each.trying]
        for each in due:
            each.trying = True
        return due
