"""Recording an engine's statistics: totals, the iteration log, publication at intervals."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .iteration_log import IterationLog
from .statistics import Statistics


class Recorder:
    """Keeps the statistics of an engine: adds up totals, logs iterations, publishes at intervals.

    `publish` is called at most every `period_s` seconds, because it may cost more than a step. The
    log is flushed as often, and whenever the engine has nothing left to do.
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
        now = time.monotonic()
        iteration = self.current.iteration + 1
        self.current = Statistics(iteration, time.time(), now, **fields, **self._totals)
        self._at_rest = False
        self._log.write(self.current)
        due = now >= self._next
        if due or not self.current.active:
            self._log.flush()
        if due:
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
    "generated_tokens",
    "blocks_reserved",
)
