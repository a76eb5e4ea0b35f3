"""The one place that a gateway tells of its requests; it passes them on to metrics, log, traces.

    observer = Observer(RequestLog(folder), telemetry_of(None, name))   # either may be None
    record = observer.begin("/v1/chat/completions")                     # t0
    record.model = ...; record.t1 = time.monotonic(); ...
    observer.end(record)                                                # t6, counted, written

For one thread, the event loop's. What takes longer than some microseconds is done in another.
"""

from __future__ import annotations

import secrets
import time

from .metrics import GatewayMetrics
from .record import RequestRecord
from .request_log import RequestLog
from .telemetry import Telemetry
from .writer import Writer

PROBES = frozenset({"/health", "/ready", "/metrics"})
"""What other programs ask every few seconds: counted, and not written down."""


class Observer:
    """The requests that go on, and what became of those that ended."""

    def __init__(
        self,
        log: RequestLog | None = None,
        telemetry: Telemetry | None = None,
        *,
        keeps_prompts: bool = False,
    ) -> None:
        self.keeps_prompts = keeps_prompts
        """Whether `prompt` and `answer` of a record are to be filled in."""
        self._kept_by = [each for each in (log, telemetry) if each is not None]
        self._writer = Writer([each.write for each in self._kept_by]) if self._kept_by else None
        self._log = log
        self._going_on: dict[str, RequestRecord] = {}
        self.metrics = GatewayMetrics(self._going_on.values(), self._lost)

    def begin(self, endpoint: str, trace_parent: str | None = None) -> RequestRecord:
        """A request has arrived at an endpoint, named as routed."""
        record = RequestRecord(
            id=secrets.token_hex(12),
            endpoint=endpoint,
            time=time.time(),
            t0=time.monotonic(),
            trace_parent=trace_parent,
        )
        self._going_on[record.id] = record
        return record

    def end(self, record: RequestRecord) -> None:
        """A request has ended, however it did; further calls change nothing."""
        if self._going_on.pop(record.id, None) is None:
            return
        if record.t6 is None:
            record.t6 = time.monotonic()
        if not self.keeps_prompts:
            record.prompt = record.answer = None
        self.metrics.count(record)
        if self._writer and record.endpoint not in PROBES:
            self._writer.add(record)

    def close(self) -> None:
        """Write what has not been written yet, and close the log and the telemetry."""
        if self._writer:
            self._writer.close()
        for each in self._kept_by:
            each.close()

    def _lost(self) -> int:
        return (self._writer.lost if self._writer else 0) + (self._log.lost if self._log else 0)
