"""The events of a run log, and the one codec that writes and reads them.

An event is one line of JSON; the field `event` names its type. Times are seconds since the session
began (monotonic), `t` that of writing. `node` is a path of child indices.
docs/reference/run-log.md says what each event means. A log of another version than VERSION is
refused.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from tts.build.spec import Role
from tts.problem import Problem, Turn
from tts.search import Decision, Fate, Limit, NodePath, SearchResult, Stop, Thought

VERSION = 5
"""The version of the log's schema."""

LoggedSeconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]
"""A time on a session's clock, or a duration."""
LoggedCount = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
LoggedScore = Annotated[float, msgspec.Meta(ge=0, le=1)]
InFlight = tuple[LoggedCount, LoggedCount]
LoggedPath = tuple[Annotated[int, msgspec.Meta(ge=-1, le=10**9)], ...]
"""A NodePath, bounded where it is read."""
KindName = Literal["main", "eager", "speculative"]
WorkName = Literal["expand", "score", "prefetch"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base of all events."""

    t: LoggedSeconds


class SessionBegan(Event, frozen=True, kw_only=True, tag="session"):
    """The run was started or resumed, at this wall-clock `time` (ISO 8601)."""

    time: str
    version: int
    limits: InFlight | None = None
    """Limits in flight: requests on the generator, prompt tokens or critiques on the verifier."""
    made_with: dict[str, str] = {}
    """Versions and machine (`log.surroundings`); empty where a repair has put the event in."""
    files: dict[str, str] = {}
    """The checksums of run.json and problems.jsonl as they were then; empty as `made_with`."""
    changed: dict[str, str] = {}
    """The SHA-256 of files with functions that were others until then, by role."""

    @property
    def began(self) -> datetime:
        """`time` in UTC; raises ValueError if it is none."""
        moment = datetime.fromisoformat(self.time)
        if moment.tzinfo is None or not 1900 < moment.year < 9999:
            raise ValueError(f"{self.time!r:.60} is not the time of a session")
        return moment.astimezone(UTC)


class ProblemStarted(Event, frozen=True, kw_only=True, tag="problem_started"):
    """A queued problem became a running one."""

    problem: str
    question: str
    history: tuple[Turn, ...] = ()
    """The conversation before the question."""
    chat_template_kwargs: dict[str, Any] = {}


class LoggedThought(msgspec.Struct, frozen=True, omit_defaults=True):
    """A thought as it is logged."""

    ids: tuple[int, ...]
    text: str
    stop: Stop
    thinking: bool = False
    """Whether it belongs to what the model thinks before its answer."""
    confidence: float | None = None
    """The confidence of the chain's weakest window, at its last thought, if its search asks."""


class RequestEnded(Event, frozen=True, kw_only=True):
    """A request that an engine was sent.

    `in_flight`: requests on the generator and the verifier when it was sent, itself included.
    """

    problem: str
    sent: LoggedSeconds
    done: LoggedSeconds
    prompt_tokens: LoggedCount
    in_flight: InFlight
    server: str = ""
    """The address of the server, where a run has several; `in_flight` is what it had."""


class StepGenerated(RequestEnded, frozen=True, kw_only=True, tag="generated"):
    """The generator answered: `node` is the first thought's, each further one is its child 0."""

    node: LoggedPath
    kind: KindName
    tokens: LoggedCount
    thoughts: tuple[LoggedThought, ...]


class StepScored(Event, frozen=True, kw_only=True, tag="scored"):
    """A node got its score; where it is `cached`, without a request of its own."""

    problem: str
    node: LoggedPath
    score: LoggedScore
    cached: bool
    kind: KindName | None = None
    sent: LoggedSeconds = 0.0
    done: LoggedSeconds = 0.0
    prompt_tokens: LoggedCount = 0
    tokens: LoggedCount = 0
    """Tokens that the verifier generated."""
    no_verdict: LoggedCount = 0
    """How many of its critiques have no verdict."""
    critique: str = ""
    """What the verifier wrote, the first of several critiques."""
    reused: LoggedCount = 0
    """Tokens of the prompt that one of the problem before it began with."""
    in_flight: InFlight = (0, 0)
    server: str = ""
    """The address of the server, where a run has several."""


class Prefetched(RequestEnded, frozen=True, kw_only=True, tag="prefetched"):
    """The generator computed a prompt ahead of the requests that begin with it."""

    node: LoggedPath = ()
    engine: Role = "generator"


class Cancelled(RequestEnded, frozen=True, kw_only=True, tag="cancelled"):
    """A request was cancelled before it was answered, or its answer was not wanted any more."""

    work: WorkName
    node: LoggedPath
    kind: KindName
    why: str
    """`ended`, `pruned` or `slot`."""


class Used(Event, frozen=True, kw_only=True, tag="used"):
    """A search asked for an expansion that had been sent ahead."""

    problem: str
    node: LoggedPath


class Idle(Event, frozen=True, kw_only=True, tag="idle"):
    """Nothing was in flight on an engine."""

    engine: Role
    since: LoggedSeconds
    until: LoggedSeconds
    why: str
    server: str = ""
    """The server that idled, where a run has several."""


class LoggedCompletion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A completion; `group` is its answer's place in the groups, -1 for no answer."""

    node: LoggedPath
    score: Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)] | None
    """The aggregate of the verifier's own scores."""
    group: int
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """The aggregate of what `verifier.calibration` makes of them; missing without one."""


class LoggedAnswer(msgspec.Struct, frozen=True):
    """A group of equal answers: the first of them, and whether it is right."""

    answer: str
    correct: bool | None


class ProblemSolved(Event, frozen=True, kw_only=True, tag="problem_solved"):
    """A problem's search ended and its answers were compared; `correct` by rule, like `answers`."""

    problem: str
    answers: dict[str, str | None]
    correct: dict[str, bool] | None
    any_correct: bool | None
    tree_digest: str
    level: int | str | None = None
    reference: str | None = None
    undecided: LoggedCount = 0
    completions: tuple[LoggedCompletion, ...] = ()
    groups: tuple[LoggedAnswer, ...]
    fates: dict[Fate, tuple[LoggedPath, ...]] = {}
    """The fate of each node that neither is a completion nor went on: see `logged_fates`."""
    nodes: LoggedCount = 0
    limit: Limit | None = None
    """What ended the search before its own end; only where a limit did."""
    lost_tokens: LoggedCount = 0
    """Generated tokens for which its budget had no room."""
    decision: Decision | None = None
    """The advice to `auto` and what came of it; other strategies have none."""

    def __post_init__(self) -> None:
        if any(each.group >= len(self.groups) for each in self.completions):
            raise ValueError(f"a completion is of a group that is not among its {len(self.groups)}")


class Resources(Event, frozen=True, kw_only=True, tag="resources"):
    """Resources that the orchestrator's process and its machine's GPUs have used since the session
    began.
    """

    cpu_s: LoggedSeconds
    """Processor seconds, user and system, of all threads."""
    energy_j: dict[str, Annotated[float, msgspec.Meta(ge=0, le=1e15)]] = {}
    """Joules by GPU number; empty where NVML tells none."""


class Finished(Event, frozen=True, kw_only=True, tag="finished"):
    """The run is complete."""


AnyEvent = (
    SessionBegan
    | ProblemStarted
    | StepGenerated
    | StepScored
    | Prefetched
    | Cancelled
    | Used
    | Idle
    | ProblemSolved
    | Resources
    | Finished
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)


def encode(event: Event) -> bytes:
    """One line of the log, without its end."""
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:  # half of a surrogate pair, which is text in Python and JSON alike
        return json.dumps(msgspec.to_builtins(event), separators=(",", ":")).encode()


def decode(line: bytes) -> AnyEvent:
    """The event of a line; raises msgspec.ValidationError, or ValueError if it is not JSON."""
    try:
        event: AnyEvent = _decoder.decode(line)
    except msgspec.ValidationError:
        raise
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError:  # not JSON, or half of a surrogate pair, which msgspec does not read
        event = msgspec.convert(_loads(line), AnyEvent)
    return event


def _loads(line: bytes) -> object:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON number")

    try:
        return json.loads(line, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def logged(thoughts: tuple[Thought, ...]) -> tuple[LoggedThought, ...]:
    """Thoughts as they are logged."""
    return tuple(
        LoggedThought(t.token_ids, t.text, t.stop, t.thinking, t.confidence) for t in thoughts
    )


def logged_fates(result: SearchResult) -> dict[Fate, tuple[NodePath, ...]]:
    """Nodes by fate, without those whose fate is seen without it.

    A completion is completed, and a node is expanded when a written child of it is in the tree.
    What was written and is none of all these never entered the tree.
    """
    completed = {end.node for end in result.completions}
    parents = {each.path[:-1] for each in result.tree if each.thought and each.thought.token_ids}
    fates: dict[Fate, list[NodePath]] = {}
    for node in result.tree:
        plain = Fate.EXPANDED if node.path in parents else None
        if node.fate is not (Fate.COMPLETED if node.path in completed else plain):
            fates.setdefault(node.fate, []).append(node.path)
    return {fate: tuple(sorted(nodes)) for fate, nodes in fates.items()}


def problem_of(event: ProblemStarted) -> Problem:
    """The problem that was started, without its reference."""
    return Problem(
        event.problem,
        event.question,
        history=event.history,
        chat_template_kwargs=event.chat_template_kwargs,
    )


def thoughts_of(event: StepGenerated) -> tuple[Thought, ...]:
    """The thoughts that were logged."""
    return tuple(Thought(t.ids, t.text, t.stop, t.thinking, t.confidence) for t in event.thoughts)
