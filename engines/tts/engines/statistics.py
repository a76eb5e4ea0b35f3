"""What an engine did in one iteration, and the log of all iterations."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

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
    """Those of them still in their prompt."""
    generation_requests: int = 0
    """Those of them that generated one token each."""
    context_tokens: int = 0
    """Tokens of the prompts completed in this iteration. Each prompt counts whole, and once: the
    pipeline tells neither how it was split over iterations nor how much of it was reused."""
    blocks_used: int = 0
    """KV blocks in use, without blocks kept only for reuse."""
    blocks_reserved: int = 0
    """KV blocks promised to active requests, for their worst case."""
    requests_total: int = 0
    """Requests answered since start, whatever the answer."""
    input_tokens_total: int = 0
    output_tokens_total: int = 0


class IterationLog:
    """One JSON line per iteration, buffered; None as the file keeps no log."""

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
