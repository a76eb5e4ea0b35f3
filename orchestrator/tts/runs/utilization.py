"""How well a run used its engines, from its events alone: idle time, waste, batches, latencies.

Nothing here is measured anew: events are added up as they come, and what needs the order in which
requests were sent looks at a window of them. So memory grows with the problems, by a number each,
and not with the requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tts.compat import Self

from .batches import BatchCounter, Batches
from .cancelled_tokens import CancelledTokens
from .events import (
    AnyEvent,
    Generated,
    Idle,
    ProblemSolved,
    ProblemStarted,
    Scored,
    Session,
    Used,
)
from .records import ENGINES, Engine, RequestRecord
from .requests import InOrderOfSending, end_to_end, request_of
from .speculation import Speculation
from .statistics import quantile, rounded


@dataclass
class ServerLoad:
    """What one of several servers did."""

    generated_tokens: int = 0
    requests: dict[Engine, int] = field(default_factory=lambda: dict.fromkeys(ENGINES, 0))
    """Those that were answered."""

    def add(self, event: AnyEvent) -> None:
        """Take in an event of this server."""
        if isinstance(event, Generated):
            self.generated_tokens += event.tokens
            self.requests["generator"] += 1
        elif isinstance(event, Scored):
            self.requests["verifier"] += 1

    def to_json(self) -> dict[str, int]:
        """What a run's summary keeps of this."""
        requests = {f"{engine}_requests": count for engine, count in self.requests.items()}
        return {"generated_tokens": self.generated_tokens, **requests}


class Utilization:
    """What a run's events add up to, over all of its sessions laid end to end."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.generated_tokens = 0
        """Of all answers."""
        self._idle_s: dict[Engine, dict[str, float]] = {engine: {} for engine in ENGINES}
        self.latencies_s: dict[str, float] = {}
        """From the start of each problem to its result."""
        self.speculation = Speculation()
        self._cancelled = CancelledTokens()
        self._batches = BatchCounter()
        self._order = InOrderOfSending()
        self._started: dict[str, float] = {}
        self.servers: dict[str, ServerLoad] = {}
        """What each of several servers did, by its address; empty where there was one."""

    @classmethod
    def of(cls, events: Iterable[AnyEvent]) -> Self:
        """The utilization of a whole run."""
        use = cls()
        for began, event in end_to_end(events):
            use.add(event, began)
        use.finish()
        return use

    def add(self, event: AnyEvent, began: float) -> None:
        """Take in the next event, of the session that began at `began`."""
        if isinstance(event, Session):
            return
        now = began + event.t
        if server := getattr(event, "server", ""):
            self.servers.setdefault(server, ServerLoad()).add(event)
        match event:
            case ProblemStarted():
                self._started[event.problem] = now
            case ProblemSolved():
                self.speculation.solved(event.problem)
                if (started := self._started.pop(event.problem, None)) is not None:
                    self.latencies_s[event.problem] = now - started
            case Used():
                self.speculation.use(event.problem, event.node)
            case Idle():
                sums = self._idle_s[event.engine]
                sums[event.why] = sums.get(event.why, 0.0) + (event.until - event.since)
            case _ if request := request_of(event, began):
                self._add_request(request)
        self.wall_s = max(self.wall_s, now)

    def finish(self) -> None:
        """There are no more events."""
        for request in self._order.rest():
            self._in_order(request)
        self._cancelled.finish()

    @property
    def idle_s(self) -> dict[Engine, dict[str, float]]:
        """Seconds in which an engine had nothing in flight, by why; of several servers the mean."""
        servers = max(1, len(self.servers))
        return {
            engine: {why: seconds / servers for why, seconds in by_why.items()}
            for engine, by_why in self._idle_s.items()
        }

    @property
    def batches(self) -> dict[str, Batches]:
        """The verifier's batches by what sent them; empty where requests were not held back."""
        return dict(sorted(self._batches.by_trigger.items()))

    @property
    def cancelled_tokens(self) -> float:
        """An estimate of what cancelled requests had generated, which the client does not see."""
        return self._cancelled.estimate

    @property
    def waste(self) -> float | None:
        """Share of generated tokens that no search needed, those of cancelled requests included."""
        total = self.generated_tokens + self.cancelled_tokens
        return (self.speculation.unused_tokens + self.cancelled_tokens) / total if total else None

    def to_json(self) -> dict[str, Any]:
        """What a run's summary keeps of this."""
        latencies, ahead = self.latencies_s.values(), self.speculation
        by_server = {name: load.to_json() for name, load in sorted(self.servers.items())}
        return {
            **({"servers": by_server} if by_server else {}),
            "latency_s": {
                "median": rounded(quantile(latencies, 0.5), 3),
                "p95": rounded(quantile(latencies, 0.95), 3),
            },
            "idle_s": {
                engine: {why: round(seconds, 3) for why, seconds in by_why.items()}
                for engine, by_why in self.idle_s.items()
            },
            "speculation": {
                "sent": ahead.sent,
                "answered": ahead.answered,
                "used": ahead.used,
                "cancelled": dict(sorted(ahead.cancelled.items())),
                "hit_rate": rounded(ahead.hit_rate, 4),
            },
            "waste": {
                "unused_tokens": ahead.unused_tokens,
                "cancelled_tokens_estimated": round(self.cancelled_tokens),
                "share": rounded(self.waste, 4),
            },
            "verifier_batches": {
                name: {"batches": b.batches, "requests": b.requests, "tokens": b.tokens}
                for name, b in self.batches.items()
            },
        }

    def _add_request(self, request: RequestRecord) -> None:
        self.generated_tokens += request.tokens or 0
        if request.kind == "speculative" and request.engine == "generator":
            self.speculation.add(request)
        if next_sent := self._order.add(request):
            self._in_order(next_sent)

    def _in_order(self, request: RequestRecord) -> None:
        if request.engine == "verifier":
            self._batches.add(request)
        elif request.cancelled is None:
            self._cancelled.answered(request)
        elif request.kind != "prefetch":  # which generates a token at most
            self._cancelled.cancelled(request)
