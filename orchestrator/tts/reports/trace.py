"""A run's timeline, `trace.json`, written in one pass over its log: Chrome's trace event format.

The process `orchestrator` has the problems in lanes, how many run, and the scheduler's decisions:
what was sent, cancelled, or used though it had been sent ahead. `generator` and `verifier` have
counters (requests in flight; from the engine's steps KV blocks in use, batch, queued, tokens/s),
idle stretches by why, and the requests in slots.

Slots are the fewest lanes that keep requests apart (interval colouring, greedily by time of
sending). A flow leads from a node's score to each expansion of that node that waited for it.
"""

from __future__ import annotations

import heapq
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

from tts.base.errors import RunError
from tts.build.spec import ROLES, Role
from tts.runs.checks import check_run
from tts.runs.engine_steps import steps_of_run
from tts.runs.events import (
    AnyEvent,
    Idle,
    ProblemSolved,
    ProblemStarted,
    SessionBegan,
    StepScored,
    Used,
)
from tts.runs.files import replacing
from tts.runs.folder import read_config
from tts.runs.log import read_events
from tts.runs.records import EngineRequest
from tts.runs.requests import WINDOW, InOrderOfSending, request_of
from tts.runs.state import end_to_end
from tts.search import NodePath

TRACE = "trace.json"
Details = dict[str, str | int | float]
"""What an event says of itself."""
_SCORES = 4 * WINDOW
"""Scores that are kept for the expansions that may follow; more than those of all running ones."""
_RATE_S = 0.1
"""Over which tokens/s is a mean."""


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
        with replacing(file) as stream:
            events = read_events(folder)
            first = next(events, None)
            if first is None:
                raise RunError(f"The run in {folder} has not begun: its log is empty.")
            out = _Events(stream)
            trace = _Trace(out, vote)
            trace.add_events(chain((first,), events))
            for engine in ROLES:
                trace.add_steps(folder, engine)
            out.end(first.time if isinstance(first, SessionBegan) else None)
    except OSError as error:
        raise RunError(
            f"The trace {file} cannot be written: {error.strerror or error}.",
            hint="Name another file with --to, in a folder that is there.",
        ) from error
    return file, trace.counts


@dataclass(frozen=True)
class _Track:
    """A lane of slices: what the format calls a thread of a process."""

    pid: int
    tid: int


class _Events:
    """The events of a trace, one a line, as they come. Times are seconds from the run's begin."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._ids = count(1)  # of processes and tracks; viewers take 0 for the machine's idle time
        self._before = b'{"displayTimeUnit":"ms","traceEvents":[\n'

    def process(self, name: str) -> int:
        """A process of its own: what holds tracks and counters."""
        pid = next(self._ids)
        self._write("M", "process_name", 0.0, pid=pid, tid=pid, args={"name": name})
        return pid

    def track(self, process: int, name: str) -> _Track:
        """A track of a process, below those that are there."""
        track = _Track(process, next(self._ids))
        self._write("M", "thread_name", 0.0, **vars(track), args={"name": name})
        return track

    def slice(self, track: _Track, name: str, start: float, end: float, details: Details) -> None:
        """Something that took its time."""
        length = _microseconds(end) - _microseconds(start)
        self._write("X", name, start, dur=length, **vars(track), args=details)

    def instant(self, track: _Track, name: str, t: float, details: Details) -> None:
        """Something that happened at one moment."""
        self._write("i", name, t, s="t", **vars(track), args=details)

    def count(self, process: int, name: str, t: float, value: int) -> None:
        """A counter's value from `t` on."""
        self._write("C", name, t, pid=process, args={"value": value})

    def flow(self, number: int, start: tuple[_Track, float], end: tuple[_Track, float]) -> None:
        """An arrow between two slices, which are those of their tracks at these times."""
        for kind, (track, t) in (("s", start), ("f", end)):
            bound = {"bp": "e"} if kind == "f" else {}
            self._write(kind, "score", t, id=number, cat="score", **bound, **vars(track))

    def end(self, began: str | None) -> None:
        """No event follows; `began` is the wall-clock time of the run's begin, ISO 8601."""
        self._file.write(f'\n],"otherData":{json.dumps({"began": began})}}}\n'.encode())

    def _write(self, kind: str, name: str, t: float, **fields: Any) -> None:
        event = {"ph": kind, "name": name, "ts": _microseconds(t), **fields}
        self._file.write(self._before + json.dumps(event, separators=(",", ":")).encode())
        self._before = b",\n"


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


class _Lanes:
    """The fewest tracks of a process in which slices do not touch; in order of their begins."""

    def __init__(self, out: _Events, process: int, name: str) -> None:
        """`name` is that of each track, before its number."""
        self._out, self._process, self._name = out, process, name
        self._tracks: list[_Track] = []
        self._busy: list[tuple[float, int]] = []
        self._free: list[int] = []

    def take(self) -> int:
        """The number of a free track, the lowest, until it is given back."""
        if self._free:
            return heapq.heappop(self._free)
        number = len(self._tracks)
        self._tracks.append(self._out.track(self._process, f"{self._name} {number}"))
        return number

    def give_back(self, number: int) -> _Track:
        """The track of a number, which is free again."""
        heapq.heappush(self._free, number)
        return self._tracks[number]

    def place(self, start: float, end: float) -> _Track:
        """The track of the next interval."""
        while self._busy and self._busy[0][0] < start:
            self.give_back(heapq.heappop(self._busy)[1])
        number = self.take()
        heapq.heappush(self._busy, (end, number))
        return self._tracks[number]


class _Engine:
    """The tracks of one engine."""

    def __init__(self, out: _Events, name: Role) -> None:
        self.out = out
        self.process = out.process(name)
        self._idle: _Track | None = None
        self._slots = _Lanes(out, self.process, "slot")
        self._ends: list[float] = []

    def slot(self, request: EngineRequest) -> _Track:
        """The track of the next request, in order of sending."""
        while self._ends and self._ends[0] <= request.sent:
            self._count_down()
        heapq.heappush(self._ends, request.done)
        self.out.count(self.process, "in flight", request.sent, len(self._ends))
        return self._slots.place(request.sent, request.done)

    def idle(self, since: float, until: float, why: str) -> None:
        """Nothing was in flight, and why."""
        if self._idle is None:
            self._idle = self.out.track(self.process, "idle")
        self.out.slice(self._idle, why, since, until, {})

    def finish(self) -> None:
        """No request follows."""
        while self._ends:
            self._count_down()

    def _count_down(self) -> None:
        end = heapq.heappop(self._ends)
        self.out.count(self.process, "in flight", end, len(self._ends))


class _Trace:
    """A run's events as slices, instants, counters and flows."""

    def __init__(self, out: _Events, vote: str) -> None:
        self._out = out
        self._vote = vote
        self._orchestrator = out.process("orchestrator")
        self._decisions = out.track(self._orchestrator, "scheduler")
        self._lanes = _Lanes(out, self._orchestrator, "problems")
        self._open: dict[str, tuple[float, int, str]] = {}
        """Begin, lane and question of each running problem."""
        self._engines = {name: _Engine(out, name) for name in ROLES}
        self._waiting = InOrderOfSending()
        self._values: dict[tuple[str, NodePath], float] = {}
        """Scores whose requests wait to be put in order."""
        self._scores: OrderedDict[tuple[str, NodePath], tuple[_Track, EngineRequest]] = (
            OrderedDict()
        )
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
                case SessionBegan():
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
                case StepScored(cached=False):
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
        for engine in self._engines.values():
            engine.finish()

    def add_steps(self, folder: Path, name: Role) -> None:
        """Write what the engine itself said of its steps, if the run has recorded it."""
        process = self._engines[name].process
        before: dict[str, int] = {}

        def count(title: str, t: float, value: int | None) -> None:
            if value is not None and value != before.get(title):
                self._out.count(process, title, t, value)
                before[title] = value

        slice_of, tokens = 0, 0
        for step in steps_of_run(folder, name):
            self._steps += 1
            count("KV blocks in use", step.t, step.blocks_used)
            count("batch", step.t, step.scheduled)
            count("queued", step.t, step.queued)
            if step.seconds is None or step.tokens is None:
                continue  # samples do not add up to a rate
            while int(step.t / _RATE_S) > slice_of:
                count("tokens/s", slice_of * _RATE_S, round(tokens / _RATE_S))
                slice_of = slice_of + 1 if tokens else int(step.t / _RATE_S)
                tokens = 0
            tokens += step.tokens
        if tokens:
            count("tokens/s", slice_of * _RATE_S, round(tokens / _RATE_S))
            count("tokens/s", (slice_of + 1) * _RATE_S, 0)

    def _add_request(self, request: EngineRequest) -> None:
        """Write a request, in order of sending."""
        self._requests += 1
        track = self._engines[request.engine].slot(request)
        key, details = (request.problem, request.node), _details(request)
        if request.cancelled:
            why: Details = {"cancelled": request.cancelled}
            self._decide(f"cancel {request.engine}", request.done, *key, why)
        facts: Details = {
            "kind": request.kind,
            "generator in flight": request.in_flight[0],
            "verifier in flight": request.in_flight[1],
        }
        self._decide(f"send {request.engine}", request.sent, *key, facts)
        scored = request.engine == "verifier" and not request.cancelled and key in self._values
        if scored:
            details["score"] = self._values.pop(key)
        self._out.slice(track, _title(request), request.sent, request.done, details)
        if scored:
            self._scores[key] = track, request
            self._scores.move_to_end(key)  # of an earlier session it may be there
            if len(self._scores) > _SCORES:
                self._scores.popitem(last=False)
        elif request.engine == "generator" and request.kind != "prefetch":
            self._flow_to(request, track)

    def _flow_to(self, request: EngineRequest, track: _Track) -> None:
        """The flow from the score of a request's parent, if it was sent after that was known."""
        waited_for = self._scores.get((request.problem, request.node[:-1]))
        if waited_for and waited_for[1].done <= request.sent:
            self._flows += 1
            began = waited_for[0], waited_for[1].sent
            self._out.flow(self._flows, began, (track, request.sent))

    def _decide(self, what: str, t: float, problem: str, node: NodePath, details: Details) -> None:
        about: Details = {"problem": problem, "node": _name(node)}
        self._out.instant(self._decisions, what, t, about | details)

    def _start_problem(self, event: ProblemStarted, t: float) -> None:
        self._close(event.problem, t, {})  # a log that was repaired may not say that it ended
        self._open[event.problem] = t, self._lanes.take(), event.question
        self._out.count(self._orchestrator, "running", t, len(self._open))

    def _end_problem(self, event: ProblemSolved, t: float) -> None:
        details: Details = {}
        if (answer := event.answers.get(self._vote)) is not None:
            details["answer"] = answer
        if event.correct is not None and self._vote in event.correct:
            details["correct"] = "yes" if event.correct[self._vote] else "no"
        self._close(event.problem, t, details)

    def _end_problems(self, t: float) -> None:
        """A session is over: what it has not solved ends with it."""
        for problem in list(self._open):
            self._close(problem, t, {})

    def _close(self, problem: str, t: float, details: Details) -> None:
        if problem not in self._open:
            return
        began, lane, question = self._open.pop(problem)
        facts: Details = {"problem": problem, "question": question}
        self._out.slice(self._lanes.give_back(lane), problem, began, t, facts | details)
        self._out.count(self._orchestrator, "running", t, len(self._open))


def _details(request: EngineRequest) -> Details:
    details: Details = {
        "problem": request.problem,
        "node": _name(request.node),
        "kind": request.kind,
        "prompt tokens": request.prompt_tokens,
    }
    if request.tokens:
        details["tokens"] = request.tokens
    if request.cancelled:
        details["cancelled"] = request.cancelled
    return details


def _title(request: EngineRequest) -> str:
    """The name of a slice: the node, and the kind where it is not plain main work."""
    kind = "" if request.kind == "main" else f"{request.kind} "
    suffix = " (cancelled)" if request.cancelled else ""
    return f"{kind}{_name(request.node)}{suffix}"


def _name(node: NodePath) -> str:
    return ".".join(map(str, node)) or "prompt"
