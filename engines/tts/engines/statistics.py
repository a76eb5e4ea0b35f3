"""What an engine did in each iteration: data, metrics under TensorRT-LLM's names, and a log.

Without a counterpart here, and left out: `nv_trt_llm_runtime_memory_metrics`, `micro_batch_id`, and
the `reused` blocks, which the pipeline does not report.

The iteration log has a JSON line per iteration, in a file of bounded size. The engine's process
writes it, any process of the machine can follow it. A file that has grown to ROTATE_BYTES becomes
FILE.1, replacing an earlier one, and a new file is begun; a restarted engine appends.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from .generate_request import EngineLimits


@dataclass(frozen=True, slots=True)
class Statistics:
    """One iteration of an engine, with running totals. Token counts are exact except where said."""

    iteration: int = 0
    timestamp: float = 0.0
    """Unix time when it ended, seconds."""
    monotonic: float = 0.0
    """When it ended by the machine's monotonic clock (CLOCK_MONOTONIC), seconds since its boot:
    every process of the machine reads the same one, and it cannot be set."""
    seconds: float = 0.0
    """How long the pipeline took for it."""
    active: int = 0
    """Requests known to the engine: scheduled, admitted or queued."""
    queued: int = 0
    """Requests not admitted yet."""
    scheduled: int = 0
    """Requests that took part in this iteration."""
    context_requests: int = 0
    """Scheduled requests whose prompt is not computed yet."""
    generation_requests: int = 0
    """Scheduled requests that generated one token each."""
    context_tokens: int = 0
    """Tokens of the prompts completed in this iteration. Each prompt counts fully and once: the
    pipeline reports neither how it was split over iterations nor how much of it was reused. Prompts
    of requests cancelled before that are left out."""
    generated_tokens: int = 0
    """Tokens generated in this iteration, the first ones of completed prompts included."""
    blocks_used: int = 0
    """KV blocks in use, without blocks kept only for reuse."""
    blocks_reserved: int = 0
    """KV blocks reserved for the worst case of active requests."""
    prefixes_missed: int = 0
    """Prompts of which the pool had kept a part and dropped it, since the pipeline was opened."""
    requests_total: int = 0
    """Requests answered since start, failed ones included."""
    input_tokens_total: int = 0
    output_tokens_total: int = 0


FAMILIES: dict[str, tuple[str, str]] = {
    "nv_trt_llm_request_metrics": ("request_type", "Requests of the last iteration"),
    "nv_trt_llm_kv_cache_block_metrics": ("kv_cache_block_type", "Paged KV cache, in blocks"),
    "nv_trt_llm_inflight_batcher_metrics": (
        "inflight_batcher_specific_metric",
        "In-flight batching of the last iteration",
    ),
    "nv_trt_llm_general_metrics": ("general_type", "Time and number of the last iteration"),
    "nv_llm_input_token_len": ("response_metric_type", "Prompt tokens per answered request"),
    "nv_llm_output_token_len": ("response_metric_type", "Generated tokens per answered request"),
}
"""Metric family -> the label that distinguishes its metrics, and its description."""

TOKEN_BUCKETS = (10, 50, 100, 500, 1000)


class Metric(NamedTuple):
    """One metric: its family and the value of the family's label.

    For a part of a histogram also the suffix of its name ("_bucket", "_sum", "_count") and the
    upper bound of the bucket.
    """

    family: str
    kind: str
    suffix: str = ""
    le: str = ""

    @property
    def name(self) -> str:
        """The metric's exported name."""
        return self.family + self.suffix

    @property
    def labels(self) -> dict[str, str]:
        """The exported labels except model and version."""
        label = {FAMILIES[self.family][0]: self.kind}
        return label | {"le": self.le} if self.le else label


class TokenLengths:
    """The histogram of one kind of length, kept as the counters that Prometheus reads.

    A histogram of Triton's takes one value at a time, each a round trip to the server; a counter
    takes what many requests have added at once.
    """

    def __init__(self, family: str, kind: str) -> None:
        self._metric = Metric(family, kind)
        self._sum = 0
        self._counts = [0] * (len(TOKEN_BUCKETS) + 1)  # by bucket; the last is beyond all bounds

    def observe(self, tokens: int) -> None:
        """Count one request."""
        self._sum += tokens
        self._counts[bisect_left(TOKEN_BUCKETS, tokens)] += 1

    def counters(self) -> dict[Metric, float]:
        """Totals since start."""
        within = list(accumulate(self._counts))
        bounds = [*map(str, TOKEN_BUCKETS), "+Inf"]
        metric = self._metric
        return {
            metric._replace(suffix="_count"): within[-1],
            metric._replace(suffix="_sum"): self._sum,
            **{
                metric._replace(suffix="_bucket", le=bound): count
                for bound, count in zip(bounds, within, strict=True)
            },
        }


def gauges(statistics: Statistics, limits: EngineLimits) -> dict[Metric, float]:
    """The value of every gauge."""
    requests, cache, batcher, general, *_ = FAMILIES
    values: dict[tuple[str, str], float] = {
        (requests, "active"): statistics.active,
        (requests, "max"): limits.max_active,
        (requests, "scheduled"): statistics.scheduled,
        (requests, "context"): statistics.context_requests,
        # requests that end in an iteration count as scheduled, but are not active any more
        (requests, "waiting"): max(0, statistics.active - statistics.scheduled),
        (cache, "max"): limits.blocks,
        (cache, "free"): limits.blocks - statistics.blocks_used,
        (cache, "used"): statistics.blocks_used,
        (cache, "tokens_per"): limits.block_size,
        (cache, "fraction"): statistics.blocks_used / limits.blocks,
        (batcher, "total_context_tokens"): statistics.context_tokens,
        (batcher, "generation_requests"): statistics.generation_requests,
        (batcher, "paused_requests"): 0,  # admission never lets it come to that
        (general, "timestamp"): statistics.timestamp * 1e6,
        (general, "iteration_counter"): statistics.iteration,
    }
    return {Metric(family, kind): value for (family, kind), value in values.items()}


logger = logging.getLogger(__name__)

ROTATE_BYTES = 32 << 20
_FLUSH_EVERY = 256  # records
_NAMES = [field.name for field in fields(Statistics)]
# three times as fast as json.dumps(asdict(...)), and the engine waits for it in every iteration
_LINE = "{" + ", ".join(f'"{name}": %r' for name in _NAMES) + "}\n"
_values = attrgetter(*_NAMES)
_decode = msgspec.json.Decoder(Statistics).decode


class IterationLog:
    """Appends iterations, buffered; with None as the file, no log.

    A disk that refuses ends the log and nothing else: the engine goes on without it.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._stream: BinaryIO | None = None
        self._lines: list[str] = []
        if file is not None:
            self._guarded(self._open)

    def write(self, statistics: Statistics) -> None:
        """Add one iteration."""
        if self._stream is not None:
            self._lines.append(_LINE % _values(statistics))
            if len(self._lines) >= _FLUSH_EVERY:
                self.flush()

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if self._lines:
            self._guarded(self._flush)
            self._lines.clear()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        if self._stream is not None:
            self._guarded(self._stream.close)
            self._stream = None

    def _open(self) -> None:
        assert self._file is not None
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._file.open("ab")

    def _flush(self) -> None:
        assert self._stream is not None
        assert self._file is not None
        self._stream.write("".join(self._lines).encode())
        self._stream.flush()
        if self._stream.tell() >= ROTATE_BYTES:
            self._stream.close()
            self._file.replace(rotated(self._file))
            self._open()

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            logger.warning("the iteration log %s ends here: %s", self._file, error)
            if self._stream is not None:
                with suppress(OSError):
                    self._stream.close()
            self._stream = None


class IterationLogFollower:
    """Reads the lines appended to an iteration log after this moment, by any process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stream: BinaryIO | None = None
        self._half = b""  # a line whose end is not written yet
        if self._open():
            assert self._stream is not None
            self._stream.seek(0, os.SEEK_END)

    def read(self) -> list[Statistics]:
        """The iterations that were written since the last call, oldest first; raises OSError.

        A line that a killed engine has not ended is left out.
        """
        iterations: list[Statistics] = []
        while self._stream is not None or self._open():
            assert self._stream is not None
            *lines, self._half = (self._half + self._stream.read()).split(b"\n")
            for line in lines:
                try:
                    iterations.append(_decode(line))
                except ValueError:
                    continue
            if not self._was_rotated():
                break
            self.close()
        return iterations

    def close(self) -> None:
        """Close the file; `read` opens it again, from its beginning."""
        if self._stream is not None:
            self._stream.close()
            self._stream, self._half = None, b""

    def _open(self) -> bool:
        try:
            self._stream = self._file.open("rb")
        except FileNotFoundError:
            return False
        return True

    def _was_rotated(self) -> bool:
        """Whether another file has taken the name; the open one has been read to its end."""
        assert self._stream is not None
        try:
            now, ours = self._file.stat(), self._stream.fileno()
        except FileNotFoundError:
            return False
        return not os.path.samestat(now, os.fstat(ours))


def rotated(file: Path) -> Path:
    """Where an iteration log's older part lies."""
    return file.with_name(f"{file.name}.1")


class StepRecorder:
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
        self._at_rest = not (self._period_s or self.current.active)  # if so, this tells it
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
