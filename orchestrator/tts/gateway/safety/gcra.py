"""The generic cell rate algorithm: how much of something a minute may hold. Pure: times are given.

A limit of r units per minute is a leaky bucket that holds r units and leaks r a minute. Its whole
state is one time, the *theoretical arrival time* (TAT): when the bucket will be empty. A charge of
n units moves it by n/r minutes, and is admitted if the bucket does not overflow (ITU-T I.371,
annex A, with a burst of r). So over any window of w minutes at most r + r*w units are admitted.

All arithmetic is exact: times are whole nanoseconds, kept multiplied by r, so that a unit is 60e9.
"""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Charge:
    """What was charged before the true amount is known: `units` of the bucket, from `begin`."""

    units: int
    begin: int
    """In the bucket's scaled time: when the leak gets to this charge."""
    refunded: int
    """What the bucket had refunded in all when this was charged."""


class Bucket:
    """One limit of `per_minute` units, a whole number above 0. Full at once, then refilled evenly.

    `now_ns` of successive calls must not go backwards: give it a monotonic clock.
    """

    __slots__ = ("_empty_at", "_refunded", "per_minute")

    def __init__(self, per_minute: int) -> None:
        if per_minute < 1:
            raise ValueError(f"a limit must be above 0, not {per_minute}")
        self.per_minute = per_minute
        self._empty_at = 0
        """The TAT, times `per_minute`."""
        self._refunded = 0

    def wait_ns(self, now_ns: int, units: int) -> int | None:
        """How long until `units` would be admitted: 0 now, None never, as the bucket is smaller."""
        if units > self.per_minute:
            return None
        lacking = units * _MINUTE_NS - self._room(now_ns)
        return max(0, -(-lacking // self.per_minute))

    def charge(self, now_ns: int, units: int) -> Charge:
        """Charge `units`, whether there is room or not: ask `wait_ns` before."""
        begin = max(self._empty_at, now_ns * self.per_minute)
        self._empty_at = begin + units * _MINUTE_NS
        return Charge(units, begin, self._refunded)

    def settle(self, charge: Charge, now_ns: int, units: int) -> None:
        """Replace the estimate of a charge by the true amount, once.

        What was charged too much is given back as far as it has not leaked meanwhile: capacity that
        has passed unused is lost, or later windows could hold more than the limit.
        """
        if units >= charge.units:
            self._empty_at = max(self._empty_at, now_ns * self.per_minute)
            self._empty_at += (units - charge.units) * _MINUTE_NS
            return
        # Refunds have moved this charge to an earlier time, at most by their sum.
        end = charge.begin + charge.units * _MINUTE_NS - (self._refunded - charge.refunded)
        ahead = end - now_ns * self.per_minute
        refund = max(0, min((charge.units - units) * _MINUTE_NS, ahead))
        self._empty_at -= refund
        self._refunded += refund

    def remaining(self, now_ns: int) -> int:
        """How many units would be admitted now."""
        return max(0, self._room(now_ns) // _MINUTE_NS)

    def reset_ns(self, now_ns: int) -> int:
        """How long until the whole limit is available again."""
        return max(0, -(-self._empty_at // self.per_minute) - now_ns)

    def _room(self, now_ns: int) -> int:
        now = now_ns * self.per_minute
        return self.per_minute * _MINUTE_NS - max(0, self._empty_at - now)
