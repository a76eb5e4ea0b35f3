"""Limits of a key: requests and tokens per minute, tokens per day and month, searches at a time.
Pure: times, and what was used before, are given.

Limits per minute and of searches hold for one gateway process; several behind one address each
grant them. Budgets per day and month hold for all of them, since what was used is kept (usage.py).

A limit of r units per minute is a leaky bucket that holds r units and leaks r a minute (the generic
cell rate algorithm, ITU-T I.371, annex A, with a burst of r). Its whole state is one time, the
*theoretical arrival time*: when the bucket will be empty. A charge of n units moves it by n/r
minutes, and is admitted if the bucket does not overflow. So over any window of w minutes at most
r + r*w units are admitted. All arithmetic is exact: times are whole nanoseconds, kept multiplied by
r, so that a unit is 60e9.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import ip_network

_MINUTE_NS = 60_000_000_000
WRONG_KEYS_PER_MINUTE = 20
"""Wrong keys from one address; further ones get 429."""
MAX_ADDRESSES = 4096
"""Addresses whose wrong keys are counted at a time."""


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge before the true amount is known: `units` of the bucket, from `begin`."""

    units: int
    begin: int
    """In the bucket's scaled time: when the leak gets to this charge."""
    refunded: int
    """Total refunds of the bucket when this was charged."""


class RateBucket:
    """One limit of `per_minute` units, a whole number above 0. Full at once, then refilled evenly.

    `now_ns` of successive calls must not go backwards: give it a monotonic clock.
    """

    def __init__(self, per_minute: int) -> None:
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

        An overcharge is given back as far as it has not leaked meanwhile: capacity that has
        passed unused is lost, or later windows could hold more than the limit.
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


Headers = list[tuple[bytes, bytes]]
"""Names in lower case and values, as ASGI takes them."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of a key; None: no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Counts prompts, answers and searches; tokens that the verifier reads are not counted."""
    concurrent_searches: int | None = None
    tokens_per_day: int | None = None
    """Tokens per UTC day, counted like tokens_per_minute."""
    tokens_per_month: int | None = None
    """Tokens per calendar month (UTC), counted like tokens_per_minute."""


@dataclass(frozen=True, slots=True)
class Spending:
    """The tokens that a key has used, without requests that run."""

    today: int = 0
    month: int = 0
    day_left_s: float = 0.0
    month_left_s: float = 0.0


NOTHING = Spending()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that a limit does not admit: HTTP status 429."""

    message: str
    headers: Headers
    """`x-ratelimit-*`; with `retry-after`, if it will be admitted by then unless others come."""
    code: str = "rate_limit_exceeded"


class KeyUsage:
    """Usage of one key, from none on, and what its limits still admit."""

    def __init__(self, limits: KeyLimits) -> None:
        requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
        self.limits = limits
        self.requests = None if requests is None else RateBucket(requests)
        self.tokens = None if tokens is None else RateBucket(tokens)
        self.searches = 0
        self.reserved = 0
        """The most that requests that run may use."""

    def arrive(self, now_ns: int) -> Refusal | None:
        """Charge a request for being one, or say why not."""
        if self.requests is None:
            return None
        if wait_ns := self.requests.wait_ns(now_ns, 1):
            return self._too_often(now_ns, "requests", self.requests.per_minute, wait_ns)
        self.requests.charge(now_ns, 1)
        return None

    def admit(
        self, now_ns: int, *, tokens: int, search: bool, spending: Spending = NOTHING
    ) -> Admitted | Refusal:
        """Charge the most tokens that a request may use, or say why not."""
        refusal = self._over_budget(now_ns, tokens, spending)
        if refusal := refusal or self._over_limit(now_ns, tokens, search):
            return refusal
        charge = self.tokens.charge(now_ns, tokens) if self.tokens else None
        self.searches += search
        self.reserved += tokens
        return Admitted(self._headers(now_ns), self, tokens, search, charge)

    def _over_limit(self, now_ns: int, tokens: int, search: bool) -> Refusal | None:
        most = self.limits.concurrent_searches
        if search and most is not None and self.searches >= most:
            return self._refusal(
                now_ns,
                "This key has reached its limit of concurrent searches "
                f"({self.searches} of {most}). Wait until one has ended.",
            )
        if self.tokens is None:
            return None
        wait_ns, per_minute = self.tokens.wait_ns(now_ns, tokens), self.tokens.per_minute
        if wait_ns is None:
            return self._refusal(
                now_ns,
                f"This request may use {tokens:,} tokens, and this key has {per_minute:,} per "
                "minute. Ask for less: fewer max_tokens, a smaller n.",
            )
        return self._too_often(now_ns, "tokens", per_minute, wait_ns) if wait_ns else None

    def _too_often(self, now_ns: int, what: str, per_minute: int, wait_ns: int | None) -> Refusal:
        wait_ns = wait_ns or 0
        message = f"This key may use {per_minute:,} {what} per minute."
        return self._refusal(now_ns, f"{message} Try again in {duration(wait_ns)}.", wait_ns)

    def _over_budget(self, now_ns: int, tokens: int, spending: Spending) -> Refusal | None:
        """Why the budget of the month or of the day does not admit so many tokens."""
        for budget, before, left_s, period in (
            (self.limits.tokens_per_month, spending.month, spending.month_left_s, "month"),
            (self.limits.tokens_per_day, spending.today, spending.day_left_s, "day"),
        ):
            if budget is None or before + self.reserved + tokens <= budget:
                continue
            running = f", running requests may use {self.reserved:,}" if self.reserved else ""
            message = (
                f"This key may use {budget:,} tokens per {period} (UTC). It used {before:,}"
                f"{running}, and this request may use {tokens:,}. Ask for less: fewer max_tokens, "
                "a smaller n"
            )
            wait_ns = None
            if before + tokens <= budget:
                message += "; or try again when they have ended"
            elif tokens <= budget:
                wait_ns = round(left_s * 1e9)
                start = "after 00:00 UTC" if period == "day" else "next month"
                message += f"; or try again {start}"
            return self._refusal(now_ns, f"{message}.", wait_ns, "insufficient_quota")
        return None

    def _refusal(
        self,
        now_ns: int,
        message: str,
        wait_ns: int | None = None,
        code: str = "rate_limit_exceeded",
    ) -> Refusal:
        headers = self._headers(now_ns)
        if wait_ns is not None:
            headers += _retry_after(wait_ns)
        return Refusal(message, headers, code)

    def _headers(self, now_ns: int) -> Headers:
        headers: Headers = []
        for bucket, what in ((self.requests, b"requests"), (self.tokens, b"tokens")):
            if bucket:
                headers += (
                    (b"x-ratelimit-limit-" + what, b"%d" % bucket.per_minute),
                    (b"x-ratelimit-remaining-" + what, b"%d" % bucket.remaining(now_ns)),
                    (b"x-ratelimit-reset-" + what, duration(bucket.reset_ns(now_ns)).encode()),
                )
        return headers


@dataclass(slots=True)
class Admitted:
    """A request that was admitted and has not ended."""

    headers: Headers
    """`x-ratelimit-*` for its answer."""
    usage: KeyUsage | None = None
    """Usage of its key, until it ends; None: nothing limits it."""
    reserved: int = 0
    """The most tokens that it may use."""
    search: bool = False
    charge: Charge | None = None

    def end(self, now_ns: int, tokens: int) -> None:
        """Settle on the tokens that the request has truly used; further calls change nothing."""
        usage, self.usage = self.usage, None
        if usage is None:
            return
        usage.searches -= self.search
        usage.reserved -= self.reserved
        if usage.tokens and self.charge:
            usage.tokens.settle(self.charge, now_ns, tokens)


class Limiter:
    """Usage of every key so far, and wrong keys by address; `now_ns` is a monotonic time."""

    def __init__(self) -> None:
        self._keys: dict[str, KeyUsage] = {}
        self._wrong: OrderedDict[str, RateBucket] = OrderedDict()
        """Wrong keys of the latest addresses, the latest last."""

    def reject(self, address: str, now_ns: int) -> Refusal | None:
        """Charge a wrong key to the address that it came from; a refusal once there were too many.

        Right keys of an address, which many clients may share, are not held up.
        """
        network = _network(address)
        bucket = self._wrong.setdefault(network, RateBucket(WRONG_KEYS_PER_MINUTE))
        self._wrong.move_to_end(network)
        if len(self._wrong) > MAX_ADDRESSES:
            self._wrong.popitem(last=False)
        if not (wait_ns := bucket.wait_ns(now_ns, 1)):
            bucket.charge(now_ns, 1)
            return None
        message = f"Too many wrong API keys came from here. Try again in {duration(wait_ns or 0)}."
        return Refusal(message, _retry_after(wait_ns or 0), "too_many_wrong_keys")

    def usage_of(self, key: str, limits: KeyLimits) -> KeyUsage:
        """Usage of the key with this id, which its requests are charged to."""
        usage = self._keys.get(key)
        if usage is None or usage.limits != limits:
            usage = self._keys[key] = KeyUsage(limits)
        return usage


def _network(address: str) -> str:
    """An address, or of IPv6 the network of 64 bits, all of which one client may have."""
    if ":" not in address:
        return address
    return str(ip_network((address.partition("%")[0], 64), strict=False))


def _retry_after(wait_ns: int) -> Headers:
    seconds, ms = -(-wait_ns // 10**9), -(-wait_ns // 10**6)
    return [(b"retry-after", b"%d" % seconds), (b"retry-after-ms", b"%d" % ms)]


def duration(ns: int) -> str:
    """A time as OpenAI's headers write it, rounded up: 17ms, 1.5s, 6m0s."""
    ms = -(-ns // 10**6)
    if ms < 1000:
        return f"{ms}ms"
    minutes, rest = divmod(ms, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    return f"{minutes}m{seconds}" if minutes else seconds
