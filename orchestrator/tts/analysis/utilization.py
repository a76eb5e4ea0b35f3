"""How well a run used its engines, from its events alone: load, idle time, speculation, waste.

Nothing here is measured anew: a Trace keeps what the run log says of every request, and the
functions below add it up. docs/run-log.md lists the events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, Self

from tts.runlog.log import Event

Engine = Literal["generator", "verifier"]
ENGINES: tuple[Engine, ...] = ("generator", "verifier")

BATCH_GAP_S = 1e-3
"""Verifier requests sent no further apart than this count as one batch."""
_COMPARABLE = 16  # finished requests from which a cancelled one's tokens are estimated
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the client saw it. Times are seconds since the run's first session began."""

    engine: Engine
    sent: float
    done: float
    load: int
    """What it counts while in flight: 1 on the generator, its prompt tokens on the verifier."""
    kind: str
    """main, eager, speculative, or prefetch: a prompt sent ahead."""
    problem: str
    node: tuple[int, ...]
    tokens: int | None
    """Generated tokens; None if it was cancelled."""
    why: str | None = None
    """Why it was cancelled."""
    trigger: str | None = None
    """What made a verifier request go out, where they are grouped."""

    @property
    def seconds(self) -> float:
        """How long it was in flight."""
        return self.done - self.sent


class Trace:
    """What a run's events say of its requests, over all of its sessions laid end to end."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.idle: list[tuple[Engine, float, str]] = []
        """Engine, seconds and why, of every time in which it had nothing in flight."""
        self.used: set[tuple[str, tuple[int, ...]]] = set()
        """Problem and node of speculative expansions that their search asked for later."""
        self.latencies: dict[str, float] = {}
        """Seconds from the start of each problem to its result."""
        self.wall_s = 0.0
        self._began = 0.0  # of the present session
        self._started: dict[str, float] = {}

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """The trace of a whole run."""
        trace = cls()
        for event in events:
            trace.add(event)
        return trace

    def add(self, event: Event) -> None:
        """Take in the next event of the log."""
        kind = event["event"]
        if kind == "session":
            self._began = self.wall_s
            return
        now = self._began + event["t"]
        self.wall_s = max(self.wall_s, now)
        if kind == "problem_started":
            self._started[event["problem"]] = now
        elif kind == "problem_solved" and event["problem"] in self._started:
            self.latencies[event["problem"]] = now - self._started.pop(event["problem"])
        elif kind == "used":
            self.used.add((event["problem"], tuple(event["node"])))
        elif kind == "idle":
            self.idle.append((event["engine"], event["until"] - event["since"], event["why"]))
        elif "done" in event:
            self.requests.append(self._request(event))

    def of_engine(self, engine: Engine) -> list[Request]:
        """Its requests, in the order in which they ended."""
        return [request for request in self.requests if request.engine == engine]

    def _request(self, event: Event) -> Request:
        kind = event["event"]
        engine: Engine = event.get("engine") or (
            "generator" if kind == "generated" or event.get("work") == "expand" else "verifier"
        )
        cancelled = kind == "cancelled"
        return Request(
            engine=engine,
            sent=self._began + event["sent"],
            done=self._began + event["done"],
            load=1 if engine == "generator" else event["prompt_tokens"],
            kind="prefetch" if kind == "prefetched" else event["kind"],
            problem=event["problem"],
            node=tuple(event.get("node", ())),
            tokens=None if cancelled else event.get("tokens", 0),
            why=event.get("why", "ended") if cancelled else None,
            trigger=event.get("trigger"),
        )


def occupancy(requests: Sequence[Request], wall_s: float, slices: int) -> list[float]:
    """Mean load in flight in each of so many equal parts of the wall time; empty without any.

    The mean of the whole list is the requests' load times duration, over the wall (Little's law).
    """
    if wall_s <= 0:
        return []
    width = wall_s / slices
    filled = [0.0] * slices
    for request in requests:
        sent, done = max(0.0, request.sent), min(wall_s, request.done)
        last = min(int(done / width), slices - 1)
        for place in range(min(int(sent / width), last), last + 1):
            inside = min(done, (place + 1) * width) - max(sent, place * width)
            filled[place] += max(0.0, inside) * request.load
    return [load / width for load in filled]


def sparkline(values: Sequence[float], top: float | None = None) -> str:
    """One character for each value, from empty (a space) to `top` (default: the largest value)."""
    top = max(values, default=0.0) if top is None else top
    if top <= 0:
        return " " * len(values)
    return "".join(
        _BARS[min(int(value / top * len(_BARS)), len(_BARS) - 1)] if value > 0 else " "
        for value in values
    )


def idle_s(trace: Trace) -> dict[Engine, dict[str, float]]:
    """Seconds in which each engine had nothing in flight, by why."""
    sums: dict[Engine, dict[str, float]] = {engine: {} for engine in ENGINES}
    for engine, seconds, why in trace.idle:
        sums[engine][why] = sums[engine].get(why, 0.0) + seconds
    return sums


@dataclass(frozen=True, slots=True)
class Speculation:
    """What became of the expansions that were sent before their search asked for them."""

    sent: int
    answered: int
    used: int
    """Asked for by their search, in the end; the others were not needed."""
    cancelled: dict[str, int]
    """By why. A used one may be among them, if its search ended before the answer."""

    @property
    def hit_rate(self) -> float | None:
        """Used over sent."""
        return self.used / self.sent if self.sent else None


def speculation(trace: Trace) -> Speculation:
    """Count the speculative expansions. One sent twice, after a cancellation, counts twice."""
    sent = [r for r in trace.of_engine("generator") if r.kind == "speculative"]
    nodes = {(request.problem, request.node) for request in sent}
    return Speculation(
        sent=len(sent),
        answered=sum(request.why is None for request in sent),
        used=len(nodes & trace.used),
        cancelled=dict(sorted(Counter(r.why for r in sent if r.why is not None).items())),
    )


@dataclass(frozen=True, slots=True)
class Waste:
    """Generated tokens that no search needed."""

    generated: int
    """Tokens of all answers."""
    unused: int
    """Of them, those of speculative expansions that nobody asked for."""
    cancelled: float
    """An estimate of what cancelled requests had generated, which the client does not see."""

    @property
    def share(self) -> float | None:
        """Of all tokens, those of cancelled requests included."""
        total = self.generated + self.cancelled
        return (self.unused + self.cancelled) / total if total else None


def waste(trace: Trace) -> Waste:
    """Count the wasted tokens.

    A cancelled request is taken to have generated as fast as the answered ones that were sent
    nearest to it.
    """
    answered = [r for r in trace.of_engine("generator") if r.tokens is not None]
    cancelled = [r for r in trace.of_engine("generator") if r.tokens is None]
    answered.sort(key=lambda request: request.sent)
    starts = [request.sent for request in answered]
    estimate = 0.0
    for request in cancelled:
        place = bisect_left(starts, request.sent)
        near = answered[max(0, place - _COMPARABLE // 2) : place + _COMPARABLE // 2]
        busy = sum(other.seconds for other in near)
        tokens = sum(other.tokens or 0 for other in near)
        estimate += request.seconds * tokens / busy if busy > 0 else 0.0
    return Waste(
        generated=sum(request.tokens or 0 for request in answered),
        unused=sum(
            request.tokens or 0
            for request in answered
            if request.kind == "speculative" and (request.problem, request.node) not in trace.used
        ),
        cancelled=estimate,
    )


@dataclass(frozen=True, slots=True)
class Trigger:
    """The verifier batches that went out for one reason."""

    batches: int
    requests: int
    tokens: int


def triggers(trace: Trace) -> dict[str, Trigger]:
    """The verifier's batches by what sent them; empty where requests were not grouped."""
    grouped = [r for r in trace.of_engine("verifier") if r.trigger is not None]
    counts: dict[str, list[int]] = {}
    before: Request | None = None
    for request in sorted(grouped, key=lambda request: request.sent):
        count = counts.setdefault(str(request.trigger), [0, 0, 0])
        together = (
            before is not None
            and before.trigger == request.trigger
            and request.sent - before.sent <= BATCH_GAP_S
        )
        count[0] += not together
        count[1] += 1
        count[2] += request.load
        before = request
    return {name: Trigger(*count) for name, count in sorted(counts.items())}


def quantile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that so many are not above; None without values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None


def brief(trace: Trace) -> dict[str, Any]:
    """What a run's summary keeps of this."""
    spoken, wasted = speculation(trace), waste(trace)
    return {
        "latency_s": {
            "median": _rounded(quantile(trace.latencies.values(), 0.5), 3),
            "p95": _rounded(quantile(trace.latencies.values(), 0.95), 3),
        },
        "idle_s": {
            engine: {why: round(seconds, 3) for why, seconds in by_why.items()}
            for engine, by_why in idle_s(trace).items()
        },
        "speculation": {
            "sent": spoken.sent,
            "answered": spoken.answered,
            "used": spoken.used,
            "cancelled": spoken.cancelled,
            "hit_rate": _rounded(spoken.hit_rate, 4),
        },
        "waste": {
            "unused_tokens": wasted.unused,
            "cancelled_tokens_estimated": round(wasted.cancelled),
            "share": _rounded(wasted.share, 4),
        },
        "verifier_batches": {
            name: {"batches": t.batches, "requests": t.requests, "tokens": t.tokens}
            for name, t in triggers(trace).items()
        },
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
