"""Statistics of an engine per iteration: the values, their log and their publication."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

_FLUSH_EVERY = 256  # records


@dataclass(frozen=True, slots=True)
class Statistics:
    """One iteration of an engine, with running totals. Token counts are exact except where said."""

    iteration: int = 0
    timestamp: float = 0.0
    """Unix time, seconds."""
    active: int = 0
    """Requests known to the engine: scheduled, admitted or queued."""
    queued: int = 0
    """Requests not admitted yet."""
    scheduled: int = 0
    """Requests that took part in this iteration."""
    context_requests: int = 0
    """Of the scheduled requests, those whose prompt is not computed yet."""
    generation_requests: int = 0
    """Of the scheduled requests, those that generated one token each."""
    context_tokens: int = 0
    """Tokens of the prompts completed in this iteration. Each prompt counts fully and once: the
    pipeline reports neither how it was split over iterations nor how much of it was reused. Prompts
    of requests cancelled before that are left out."""
    blocks_used: int = 0
    """KV blocks in use, without blocks kept only for reuse."""
    blocks_reserved: int = 0
    """KV blocks reserved for the worst case of active requests."""
    requests_total: int = 0
    """Requests answered since start, failed ones included."""
    input_tokens_total: int = 0
    output_tokens_total: int = 0


class IterationLog:
    """One JSON line per iteration, buffered; with None as the file, no log."""

    def __init__(self, file: Path | None) -> None:
        self._stream: TextIO | None = None
        self._lines: list[str] = []
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._stream = file.open("a", encoding="utf-8")

    def __bool__(self) -> bool:
        return self._stream is not None

    def write(self, statistics: Statistics) -> None:
        """Add one iteration."""
        self._lines.append(json.dumps(asdict(statistics)) + "\n")
        if len(self._lines) >= _FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the file system."""
        if self._stream is not None and self._lines:
            self._stream.writelines(self._lines)
            self._stream.flush()
        self._lines.clear()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class Recorder:
    """Keeps the statistics of an engine: adds up totals, logs iterations, publishes at intervals.

    `publish` is called at most every `period_s` seconds, because it may cost more than a step.
    """

    def __init__(
        self, file: Path | None, period_s: float, publish: Callable[[Statistics], None]
    ) -> None:
        self.current = Statistics()
        self._totals = {"requests_total": 0, "input_tokens_total": 0, "output_tokens_total": 0}
        self._log = IterationLog(file)
        self._period_s = period_s
        self._publish = publish
        self._next = 0.0
        self._at_rest = True

    def count(self, *, requests: int = 0, input_tokens: int = 0, output_tokens: int = 0) -> None:
        """Add to the totals."""
        self._totals["requests_total"] += requests
        self._totals["input_tokens_total"] += input_tokens
        self._totals["output_tokens_total"] += output_tokens

    def record(self, **fields: Any) -> None:
        """Record one iteration; `fields` are those of Statistics that are not counted here."""
        iteration = self.current.iteration + 1
        self.current = Statistics(iteration, time.time(), **fields, **self._totals)
        self._at_rest = False
        if self._log:
            self._log.write(self.current)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._period_s
            self._publish(self.current)

    def rest_due_s(self) -> float | None:
        """Seconds until `rest` is due if the engine stays idle; None if it was called already."""
        return None if self._at_rest else max(0.0, self._next - time.monotonic())

    def rest(self, blocks_used: int) -> None:
        """The engine is idle: publish that nothing runs, and flush the log."""
        self._at_rest = True
        self._next = time.monotonic() + self._period_s
        idle = dict.fromkeys(_OF_AN_ITERATION, 0)
        self.current = replace(self.current, **idle, blocks_used=blocks_used, **self._totals)
        self._log.flush()
        self._publish(self.current)

    def close(self) -> None:
        """Close the log."""
        self._log.close()


_OF_AN_ITERATION = (
    "active",
    "queued",
    "scheduled",
    "context_requests",
    "generation_requests",
    "context_tokens",
    "blocks_reserved",
)
