"""How well a run used its engines, from its events alone: idle time, waste, latencies.

Nothing here is measured anew: events are added up as they come, and what needs the order in which
requests were sent looks at a window of them. So memory grows with the problems, by a number each,
and not with the requests.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from tts.search import NodePath

from .events import AnyEvent, Idle, Used
from .records import ENGINES, Engine, EngineRequest
from .requests import InOrderOfSending, request_of
from .state import ProblemState, RunState, WorkCounts
from .statistics import quantile, rounded

_EACH_SIDE = 8  # answered requests, sent before and after a cancelled one, that it is compared with


@dataclass(slots=True)
class _Cut:
    """A cancelled request, with the answered ones sent before it and, one by one, after it."""

    seconds: float
    near: list[EngineRequest]
    wanted: int = _EACH_SIDE
    """How many are still to come."""


class CancelledTokens:
    """Estimates cancelled generator requests, given in the order of sending like answered ones.

    One is taken to have generated as fast as the answered ones that were sent nearest to it.
    """

    def __init__(self) -> None:
        self.estimate = 0.0
        """Tokens; it lacks the last few requests before `finish`."""
        self._before: deque[EngineRequest] = deque(maxlen=_EACH_SIDE)
        self._cut: list[_Cut] = []

    def answered(self, request: EngineRequest) -> None:
        """The next request was answered."""
        for cut in self._cut:
            cut.near.append(request)
            cut.wanted -= 1
        if self._cut and not self._cut[0].wanted:  # all that were cut at the same place are first
            done = [cut for cut in self._cut if not cut.wanted]
            self._cut = self._cut[len(done) :]
            self._add(done)
        self._before.append(request)

    def cancelled(self, request: EngineRequest) -> None:
        """The next request was cancelled."""
        self._cut.append(_Cut(request.seconds, list(self._before)))

    def finish(self) -> None:
        """There are no more requests."""
        done, self._cut = self._cut, []
        self._add(done)

    def _add(self, done: Iterable[_Cut]) -> None:
        for cut in done:
            busy = sum(other.seconds for other in cut.near)
            tokens = sum(other.tokens or 0 for other in cut.near)
            self.estimate += cut.seconds * tokens / busy if busy > 0 else 0.0


@dataclass(slots=True)
class _Ahead:
    """Speculative expansions of a problem whose search goes on."""

    answered: Counter[NodePath] = field(default_factory=Counter)
    """Tokens, by node."""
    sent: set[NodePath] = field(default_factory=set)
    used: set[NodePath] = field(default_factory=set)
    """What the search asked for: perhaps before the answer came."""


class Speculation:
    """The outcome of expansions that were sent before their search asked for them.

    One sent twice, after a cancellation, counts twice. Once a problem is solved, its nodes are
    forgotten: nothing more of it is used.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.answered = 0
        self.cancelled: Counter[str] = Counter()
        """By reason. A used one may be among them, if its search ended before the answer."""
        self._used = 0
        self._unused_tokens = 0
        self._open: dict[str, _Ahead] = {}

    def add(self, request: EngineRequest) -> None:
        """Take in a speculative request."""
        nodes = self._open.setdefault(request.problem, _Ahead())
        nodes.sent.add(request.node)
        self.sent += 1
        if request.cancelled is not None:
            self.cancelled[request.cancelled] += 1
        else:
            self.answered += 1
            nodes.answered[request.node] += request.tokens or 0

    def use(self, problem: str, node: NodePath) -> None:
        """Its search has asked for a node that had been sent ahead."""
        self._open.setdefault(problem, _Ahead()).used.add(node)

    def solved(self, problem: str) -> None:
        """Settle a problem's nodes. A used expansion that has not ended yet is still awaited."""
        nodes = self._open.pop(problem, None)
        if nodes is None:
            return
        self._used += len(nodes.sent & nodes.used)
        self._unused_tokens += _unused(nodes)
        if awaited := nodes.used - nodes.sent:
            self._open[problem] = _Ahead(used=awaited)

    @property
    def used(self) -> int:
        """How many their search asked for in the end; the others were not needed."""
        return self._used + sum(len(nodes.sent & nodes.used) for nodes in self._open.values())

    @property
    def unused_tokens(self) -> int:
        """Tokens of answers that no search asked for."""
        return self._unused_tokens + sum(map(_unused, self._open.values()))

    @property
    def hit_rate(self) -> float | None:
        """Used over sent; None without any."""
        return self.used / self.sent if self.sent else None


class Utilization:
    """What a run's events add up to, over all of its sessions laid end to end."""

    def __init__(self, run: RunState | None = None) -> None:
        self.run = run or RunState(keeps_events=False)
        """The run itself, which this folds."""
        self.servers: dict[str, WorkCounts] = {}
        """The work of each of several servers, by address; empty where there was one."""
        self.latencies_s: dict[str, float] = {}
        """From the start of each problem to its result."""
        self.answered_s: dict[Engine, float] = dict.fromkeys(ENGINES, 0.0)
        """Seconds that answered requests were in flight, added up; not those of prompts that were
        sent ahead."""
        self.speculation = Speculation()
        self.lost_tokens = 0
        """Generated tokens for which budgets had no room."""
        self._idle_s: dict[Engine, dict[str, float]] = {engine: {} for engine in ENGINES}
        self._cancelled = CancelledTokens()
        self._order = InOrderOfSending()

    @classmethod
    def of(cls, events: Iterable[AnyEvent]) -> Self:
        """The utilization of a whole run."""
        use = cls()
        for event in events:
            use.add(event)
        use.finish()
        return use

    def add(self, event: AnyEvent) -> tuple[EngineRequest | None, ProblemState | None]:
        """Take in the next event; returns the request that it ends, and the problem it solves."""
        problem = self.run.apply(event)
        if server := getattr(event, "server", ""):
            self.servers.setdefault(server, WorkCounts()).add(event)
        if request := request_of(event, self.run.began):
            self._add_request(request)
        elif isinstance(event, Used):
            self.speculation.use(event.problem, event.node)
        elif isinstance(event, Idle):
            sums = self._idle_s[event.engine]
            sums[event.why] = sums.get(event.why, 0.0) + (event.until - event.since)
        if problem:
            self.speculation.solved(problem.id)
            self.lost_tokens += problem.solution.lost_tokens if problem.solution else 0
            if problem.seconds is not None:
                self.latencies_s[problem.id] = problem.seconds
        return request, problem

    def finish(self) -> None:
        """There are no more events."""
        for request in self._order.rest():
            self._in_order(request)
        self._cancelled.finish()

    @property
    def idle_s(self) -> dict[Engine, dict[str, float]]:
        """Seconds in which an engine was idle, by reason; with several servers the mean."""
        servers = max(1, len(self.servers))
        return {
            engine: {why: seconds / servers for why, seconds in by_why.items()}
            for engine, by_why in self._idle_s.items()
        }

    @property
    def cancelled_tokens(self) -> float:
        """Estimated tokens of cancelled requests, which the client does not see."""
        return self._cancelled.estimate

    @property
    def waste(self) -> float | None:
        """Share of generated tokens that no search needed, those of cancelled requests included."""
        total = self.run.work.generated_tokens + self.cancelled_tokens
        wasted = self.speculation.unused_tokens + self.lost_tokens + self.cancelled_tokens
        return wasted / total if total else None

    def to_json(self) -> dict[str, Any]:
        """The parts of a run's summary that this tells, as `tts.runs.summary.Summary` has them."""
        latencies, ahead = self.latencies_s.values(), self.speculation
        servers = {name: _server(work) for name, work in sorted(self.servers.items())}
        return {
            **({"servers": servers} if servers else {}),
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
                **({"lost_tokens": self.lost_tokens} if self.lost_tokens else {}),
                "cancelled_tokens_estimated": round(self.cancelled_tokens),
                "share": rounded(self.waste, 4),
            },
        }

    def _add_request(self, request: EngineRequest) -> None:
        if request.cancelled is None and request.kind != "prefetch":
            self.answered_s[request.engine] += request.seconds
        if request.kind == "speculative" and request.engine == "generator":
            self.speculation.add(request)
        if request.engine == "generator" and (next_sent := self._order.add(request)):
            self._in_order(next_sent)

    def _in_order(self, request: EngineRequest) -> None:
        if request.cancelled is None:
            self._cancelled.answered(request)
        elif request.kind != "prefetch":  # which generates a token at most
            self._cancelled.cancelled(request)


def _server(work: WorkCounts) -> dict[str, int]:
    return {
        "generated_tokens": work.generated_tokens,
        "generator_requests": work.generator_calls,
        "verifier_requests": work.verifier_calls + work.cached_scores,
    }


def _unused(nodes: _Ahead) -> int:
    return sum(tokens for node, tokens in nodes.answered.items() if node not in nodes.used)
