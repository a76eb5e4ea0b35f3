"""What each problem takes of the engines, counted from the driver's events and nowhere else."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tts.runs.events import Event, Generated, ProblemStarted, Scored

from .result import Usage


@dataclass(slots=True)
class _Count:
    started: float = 0.0
    generator_calls: int = 0
    generated_tokens: int = 0
    verifier_calls: int = 0
    verifier_tokens: int = 0
    cached_scores: int = 0


class Meter:
    """Running counts of the problems that have begun and were not taken out yet."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, _Count] = defaultdict(_Count)

    def add(self, event: Event) -> None:
        """Count one event."""
        match event:
            case ProblemStarted():
                self._counts[event.problem].started = event.t
            case Generated():
                count = self._counts[event.problem]
                count.generator_calls += 1
                count.generated_tokens += event.tokens
            case Scored(cached=True):
                self._counts[event.problem].cached_scores += 1
            case Scored():
                count = self._counts[event.problem]
                count.verifier_calls += 1
                count.verifier_tokens += event.prompt_tokens

    def take(self, problem: str, now: float, completion_tokens: int) -> Usage:
        """A problem's usage, which is forgotten; it has ended at `now` on the events' clock.

        `completion_tokens` is how many tokens its completions consist of.
        """
        count = self._counts.pop(problem, _Count(started=now))
        return Usage(
            count.generator_calls,
            count.verifier_calls,
            count.generated_tokens,
            completion_tokens,
            count.verifier_tokens,
            count.cached_scores,
            round(now - count.started, 6),
        )

    def forget(self, problem: str) -> None:
        """Drop the counts of a problem that was given up."""
        self._counts.pop(problem, None)
