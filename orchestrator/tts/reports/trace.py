"""A run's timeline for Perfetto: `trace.pftrace`, written in one pass over its log.

The process `orchestrator` has the problems in lanes, how many run, and the scheduler's decisions:
what was sent, cancelled, or used though it had been sent ahead. `generator` and `verifier` have
counters (requests in flight; from the engine's steps KV blocks in use, batch, queued, tokens/s),
idle stretches by why, and the requests in slots.

Slots are the fewest lanes that keep requests apart (interval colouring, greedily by time of
sending). A flow leads from a node's score to each expansion of that node that waited for it.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tts.build.errors import RunError
from tts.runs.checks import check_run
from tts.runs.durable import make_folder, replacing
from tts.runs.engine_steps import steps_of_run
from tts.runs.events import (
    AnyEvent,
    Idle,
    ProblemSolved,
    ProblemStarted,
    Scored,
    Session,
    Used,
)
from tts.runs.folder import read_config
from tts.runs.log import read_events
from tts.runs.records import ENGINES, Engine, EngineRequest
from tts.runs.requests import WINDOW, InOrderOfSending, request_of
from tts.runs.state import end_to_end
from tts.search import NodePath

from .perfetto_file import Detail, PerfettoFile, Track

TRACE = "trace.pftrace"

_DETAILS = (
    "problem",
    "node",
    "kind",
    "prompt tokens",
    "tokens",
    "score",
    "trigger",
    "cancelled",
    "question",
    "answer",
    "correct",
    "generator in flight",
    "verifier in flight",
)
_SCORES = 4 * WINDOW
"""Scores that are kept for the expansions that may follow; more than those of all running ones."""
_RATE_S = 0.1
"""Over which tokens/s is a mean."""
_SLOT_RANK = 1000  # below the counters


@dataclass(frozen=True)
class TraceCounts:
    """What a trace holds."""

    requests: int
    flows: int
    steps: int


def write_trace(folder: Path, file: Path | None = None) -> tuple[Path, TraceCounts]:
    """Write the trace of a run, finished or not: the file, and what it holds.

    Without a name it is in the run's folder. Raises RunError.
    """
    vote = read_config(folder).get("vote", "weighted")
    check_run(folder)
    # where the user wants it links are followed, in the run's folder none is
    file = file.parent.resolve() / file.name if file else folder / TRACE
    try:
        make_folder(file.parent)
        with replacing(file) as stream:
            events = read_events(folder)
            first = next(events, None)
            if first is None:
                raise RunError(f"The run in {folder} has not begun: its log is empty.")
            trace = _Trace(PerfettoFile(stream, _DETAILS, _unix_time(first)), vote)
            trace.add_events(chain((first,), events))
            for engine in ENGINES:
                trace.add_steps(folder, engine)
    except OSError as error:
        raise RunError(
            f"The trace {file} cannot be written: {error.strerror or error}.",
            hint="Name another file with --out.",
        ) from error
    return file, trace.counts


class _Lanes:
    """Intervals put into the fewest lanes in which they do not touch; in order of their begins."""

    def __init__(self) -> None:
        self._busy: list[tuple[float, int]] = []
        self._free: list[int] = []
        self._count = 0

    def place(self, began: float, ended: float) -> int:
        """The lane of the next interval."""
        while self._busy and self._busy[0][0] < began:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        if self._free:
            lane = heapq.heappop(self._free)
        else:
            lane, self._count = self._count, self._count + 1
        heapq.heappush(self._busy, (ended, lane))
        return lane


@dataclass
class _HeldScore:
    """A score's slice, written when no expansion can follow it any more."""

    record: EngineRequest
    track: Track
    details: dict[str, Detail]
    flows: list[int] = field(default_factory=list)


class _Engine:
    """The tracks of one engine."""

    def __init__(self, out: PerfettoFile, name: Engine) -> None:
        self.out = out
        self.process = out.process(name)
        self._in_flight = out.counter(self.process, "in flight", "requests")
        self._idle: Track | None = None
        self._slots: dict[int, Track] = {}
        self._lanes = _Lanes()
        self._ends: list[float] = []

    def slot(self, request: EngineRequest) -> Track:
        """The track of the next request, in order of sending."""
        while self._ends and self._ends[0] <= request.sent:
            self._count_down()
        heapq.heappush(self._ends, request.done)
        self.out.count(self._in_flight, request.sent, len(self._ends))
        lane = self._lanes.place(request.sent, request.done)
        if lane not in self._slots:
            name = f"slot {lane}"
            self._slots[lane] = self.out.track(self.process, name, _SLOT_RANK + lane)
        return self._slots[lane]

    def idle(self, since: float, until: float, why: str) -> None:
        """Nothing was in flight, and why."""
        if self._idle is None:
            self._idle = self.out.track(self.process, "idle", _SLOT_RANK - 1)
        self.out.slice(self._idle, why, since, until, {})

    def finish(self) -> None:
        """No request follows."""
        while self._ends:
            self._count_down()

    def _count_down(self) -> None:
        ended = heapq.heappop(self._ends)
        self.out.count(self._in_flight, ended, len(self._ends))


class _Trace:
    """A run's events as slices, instants, counters and flows."""

    def __init__(self, out: PerfettoFile, vote: str) -> None:
        self._out = out
        self._vote = vote
        orchestrator = out.process("orchestrator")
        self._running = out.counter(orchestrator, "running", "problems")
        self._decisions = out.track(orchestrator, "scheduler")
        self._orchestrator = orchestrator
        self._lanes: dict[int, Track] = {}
        self._free_lanes: list[int] = []
        self._open: dict[str, tuple[float, int, str]] = {}
        """Begin, lane and question of each running problem."""
        self._engines = {name: _Engine(out, name) for name in ENGINES}
        self._waiting = InOrderOfSending()
        self._values: dict[tuple[str, NodePath], float] = {}
        """Scores whose requests wait to be put in order."""
        self._scores: OrderedDict[tuple[str, NodePath], _HeldScore] = OrderedDict()
        self._requests = self._flows = self._steps = 0

    @property
    def counts(self) -> TraceCounts:
        """The counts so far."""
        return TraceCounts(self._requests, self._flows, self._steps)

    def add_events(self, events: Iterator[AnyEvent]) -> None:
        """Write all that a log says."""
        now = 0.0
        for began, event in end_to_end(events):
            t = began + event.t
            match event:
                case Session():
                    self._end_problems(max(now, began))
                case ProblemStarted():
                    self._start_problem(event, t)
                case ProblemSolved():
                    self._end_problem(event, t)
                case Idle():
                    self._engines[event.engine].idle(
                        began + event.since, began + event.until, event.why
                    )
                case Used():
                    self._decide("used what was sent ahead", t, event.problem, event.node, {})
                case Scored(cached=False):
                    self._values[event.problem, event.node] = event.score
                case _:
                    pass
            now = max(now, t)
            request = request_of(event, began)
            if request and (next_one := self._waiting.add(request)):
                self._add_request(next_one)
        for request in self._waiting.rest():
            self._add_request(request)
        self._end_problems(now)
        while self._scores:
            self._write_score(self._scores.popitem(last=False)[1])
        for engine in self._engines.values():
            engine.finish()

    def add_steps(self, folder: Path, name: Engine) -> None:
        """Write what the engine itself said of its steps, if the run has recorded it."""
        out, process = self._out, self._engines[name].process
        counters: dict[str, tuple[Track, int]] = {}

        def count(title: str, unit: str, t: float, value: int | None) -> None:
            if value is None:
                return
            if title not in counters:
                counters[title] = out.counter(process, title, unit), -1
            counter, before = counters[title]
            if value != before:
                out.count(counter, t, value)
                counters[title] = counter, value

        slice_of, tokens = 0, 0
        for step in steps_of_run(folder, name):
            self._steps += 1
            count("KV blocks in use", "blocks", step.t, step.blocks_used)
            count("batch", "requests", step.t, step.scheduled)
            count("queued", "requests", step.t, step.queued)
            if step.seconds is None or step.tokens is None:
                continue  # samples do not add up to a rate
            while int(step.t / _RATE_S) > slice_of:
                count("tokens/s", "tokens/s", slice_of * _RATE_S, round(tokens / _RATE_S))
                slice_of = slice_of + 1 if tokens else int(step.t / _RATE_S)
                tokens = 0
            tokens += step.tokens
        if tokens:
            count("tokens/s", "tokens/s", slice_of * _RATE_S, round(tokens / _RATE_S))
            count("tokens/s", "tokens/s", (slice_of + 1) * _RATE_S, 0)

    def _add_request(self, request: EngineRequest) -> None:
        """Write a request, in order of sending."""
        self._requests += 1
        track = self._engines[request.engine].slot(request)
        key, details = (request.problem, request.node), _details(request)
        if request.cancelled:
            why: dict[str, Detail] = {"cancelled": request.cancelled}
            self._decide(f"cancel {request.engine}", request.done, *key, why)
        sent: dict[str, Detail] = {
            "kind": request.kind,
            "generator in flight": request.in_flight[0],
            "verifier in flight": request.in_flight[1],
        }
        if request.trigger:
            sent["trigger"] = request.trigger
        self._decide(f"send {request.engine}", request.sent, *key, sent)
        if request.engine == "verifier":
            if not request.cancelled and key in self._values:
                details["score"] = self._values.pop(key)
                self._hold(key, _HeldScore(request, track, details))
                return
            flows: list[int] = []
        else:
            flows = self._flow_to(request)
        self._out.slice(
            track, _title(request), request.sent, request.done, details, ending_flows=flows
        )

    def _flow_to(self, request: EngineRequest) -> list[int]:
        """The flow from the score of a request's parent, if it was sent after that was known."""
        if request.kind == "prefetch":
            return []
        score = self._scores.get((request.problem, request.node[:-1]))
        if score is None or score.record.done > request.sent:
            return []
        self._flows += 1
        score.flows.append(self._flows)
        return [self._flows]

    def _hold(self, key: tuple[str, NodePath], score: _HeldScore) -> None:
        if key in self._scores:  # in a session before
            self._write_score(self._scores.pop(key))
        self._scores[key] = score
        if len(self._scores) > _SCORES:
            self._write_score(self._scores.popitem(last=False)[1])

    def _write_score(self, score: _HeldScore) -> None:
        record = score.record
        self._out.slice(
            score.track,
            _title(record),
            record.sent,
            record.done,
            score.details,
            flows=score.flows,
        )

    def _decide(
        self, what: str, t: float, problem: str, node: NodePath, details: dict[str, Detail]
    ) -> None:
        about: dict[str, Detail] = {"problem": problem, "node": _name(node)}
        self._out.instant(self._decisions, what, t, about | details)

    def _start_problem(self, event: ProblemStarted, t: float) -> None:
        self._close(event.problem, t, {})  # a log that was repaired may not say that it ended
        if self._free_lanes:
            lane = heapq.heappop(self._free_lanes)
        else:
            lane = len(self._lanes)
            self._lanes[lane] = self._out.track(self._orchestrator, f"problems {lane}")
        self._open[event.problem] = t, lane, event.question
        self._out.count(self._running, t, len(self._open))

    def _end_problem(self, event: ProblemSolved, t: float) -> None:
        details: dict[str, Detail] = {}
        if (answer := event.answers.get(self._vote)) is not None:
            details["answer"] = answer
        if event.correct is not None and self._vote in event.correct:
            details["correct"] = "yes" if event.correct[self._vote] else "no"
        self._close(event.problem, t, details)

    def _end_problems(self, t: float) -> None:
        """A session is over: what it has not solved ends with it."""
        for problem in list(self._open):
            self._close(problem, t, {})

    def _close(self, problem: str, t: float, details: dict[str, Detail]) -> None:
        if problem not in self._open:
            return
        began, lane, question = self._open.pop(problem)
        said: dict[str, Detail] = {"problem": problem, "question": question}
        self._out.slice(self._lanes[lane], problem, began, t, said | details)
        self._out.count(self._running, t, len(self._open))
        heapq.heappush(self._free_lanes, lane)


def _details(request: EngineRequest) -> dict[str, Detail]:
    details: dict[str, Detail] = {
        "problem": request.problem,
        "node": _name(request.node),
        "kind": request.kind,
        "prompt tokens": request.prompt_tokens,
    }
    if request.tokens:
        details["tokens"] = request.tokens
    if request.cancelled:
        details["cancelled"] = request.cancelled
    if request.trigger:
        details["trigger"] = request.trigger
    return details


def _title(request: EngineRequest) -> str:
    """The name of a slice: the node, and the kind where it is not plain main work."""
    kind = "" if request.kind == "main" else f"{request.kind} "
    ended = " (cancelled)" if request.cancelled else ""
    return f"{kind}{_name(request.node)}{ended}"


def _name(node: NodePath) -> str:
    return ".".join(map(str, node)) or "prompt"


def _unix_time(first: AnyEvent) -> float | None:
    """When a log's first session began, in seconds; None if it does not say."""
    try:
        return first.began.timestamp() if isinstance(first, Session) else None
    except ValueError:
        return None
