"""What a driver reports: every request when it has ended, what took none, and idle engines.

Times are those of the driver's clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tts.build.spec import Role
from tts.problem import Problem
from tts.scheduling import Prefetch, WorkKind
from tts.search import Expand, NodePath, Score, Scored, Thought

JobAnswer = tuple[Thought, ...] | Scored | None
"""The result of a request: thoughts, a score, or nothing for a prefetch."""

CancelReason = Literal["ended", "pruned", "slot"]
"""The reason: its search has ended, wants it no longer, or its slot was needed for certain work."""


@dataclass(frozen=True, slots=True)
class Started:
    """A queued problem became a running one."""

    at: float
    problem: Problem


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """A request that an engine has answered, or that was cancelled."""

    problem: str
    work: Expand | Score | Prefetch
    kind: WorkKind
    """The kind of work that it was sent as."""
    prompt_tokens: int
    in_flight: tuple[int, int]
    """Requests on the generator and the verifier when it was sent, itself included."""
    sent_at: float
    ended_at: float
    answer: JobAnswer = None
    tokens: int = 0
    """Tokens that its engine generated."""
    no_verdict: int = 0
    """The verifier's critiques without a verdict."""
    critique: str = ""
    """What the verifier wrote, the first of several critiques."""
    cancelled: CancelReason | None = None
    reused: int = 0
    """Tokens of a score's prompt that one of the same problem before it began with."""


@dataclass(frozen=True, slots=True)
class SharedScore:
    """A node got a score without a request of its own."""

    at: float
    problem: str
    node: NodePath
    score: float


@dataclass(frozen=True, slots=True)
class UsedGuess:
    """A search asked for an expansion that had been sent ahead."""

    at: float
    problem: str
    node: NodePath


@dataclass(frozen=True, slots=True)
class IdleEngine:
    """Nothing was in flight on an engine."""

    engine: Role
    since: float
    until: float
    why: str


Record = Started | EndedRequest | SharedScore | UsedGuess | IdleEngine
TakeRecord = Callable[[Record], None]
"""Takes each record as it comes; it must not raise."""
