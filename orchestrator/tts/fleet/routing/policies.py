"""Which of the usable replicas gets a piece of work."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

from .replica import Replica

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

    def __init__(self, keys: int = KEYS) -> None:
        """At most `keys` are remembered."""
        self._keys = keys
        self._home: OrderedDict[str, str] = OrderedDict()
        """Key to name of a replica, the longest unused first."""
        self._by_load = LeastOutstanding()

    def pick(self, usable: Sequence[R], key: str, concurrency: int) -> R:
        """The key's replica, or another one for good if that is not usable."""
        home = self._home.get(key)
        replica = next((each for each in usable if each.name == home), None)
        replica = replica or self._by_load.pick(usable, key, concurrency)
        if key:
            self._home[key] = replica.name
            self._home.move_to_end(key)
            if len(self._home) > self._keys:
                self._home.popitem(last=False)
        return replica


class ByConcurrency:
    """Few requests go to the group of high tensor parallelism, many to that of many replicas.

    Tensor parallelism shortens each step, which is latency; replicas multiply steps, which is
    throughput; ScaleLLM (Yao et al., 2024, arXiv:2408.00008) routes by the load. It changes to
    `many` at the threshold, and back below RETURN_SHARE of it: between them it stays as it is, so
    that a concurrency that wavers moves no prefixes.
    """

    def __init__(self, few: str, many: str, threshold: int = THRESHOLD) -> None:
        """`few` and `many` are groups; inside one the choice is by affinity."""
        self._few, self._many = few, many
        self._threshold = threshold
        self._back = max(1, int(RETURN_SHARE * threshold))
        self._within = PrefixAffinity()
        self.busy = False
        """Whether work goes to `many`."""

    @property
    def group(self) -> str:
        """The group that work goes to now."""
        return self._many if self.busy else self._few

    def pick(self, usable: Sequence[R], key: str, concurrency: int) -> R:
        """A replica of the group; any other while none of the group is usable."""
        if concurrency >= self._threshold:
            self.busy = True
        elif concurrency < self._back:
            self.busy = False
        of_group = [each for each in usable if each.group == self.group]
        return self._within.pick(of_group or usable, key, concurrency)


def routing_policy(
    name: PolicyName, *, few: str = "", many: str = "", threshold: int = THRESHOLD
) -> RoutingPolicy:
    """A policy by its name; the groups and the threshold are those of `by-concurrency`."""
    match name:
        case "prefix-affinity":
            return PrefixAffinity()
        case "least-outstanding":
            return LeastOutstanding()
        case "by-concurrency":
            return ByConcurrency(few, many, threshold)
