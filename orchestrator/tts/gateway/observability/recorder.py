"""Takes the records of a gateway's requests and passes them on to metrics, database and traces.

For one thread, the event loop's. Work that takes longer than some microseconds is done in
another, which takes records of ended requests in batches to where they are kept.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from random import Random

from ..safety.limits import NOTHING, Spending
from .ledger import Ledger
from .metrics import GatewayMetrics
from .record import ServedRequest
from .telemetry import Telemetry

logger = logging.getLogger(__name__)

BATCH_S = 0.025
"""How long a batch is gathered. With the time to write it a process that is killed loses at most
what ended in its last 100 ms."""
IDLE_TURNS = 4
"""Every so many turns without records the thread looks whether others have changed something."""
MAX_WAITING = 100_000
"""Most records that wait for a slow disk or collector; more are lost, and counted."""

_IDS = Random()
"""Seeded by the system once: no id is a secret, and to ask it takes longer than to count one."""
Sink = Callable[[Sequence[ServedRequest]], None]
PROBES = frozenset({"/health", "/ready", "/metrics"})
"""Paths that other programs ask every few seconds: counted, and not written down."""
_NOT_WRITTEN = PROBES | {"/", "/page/"}
"""Probes, and the files of the page, a dozen for each view."""


class Recorder:
    """The requests that go on, and what became of those that ended."""

    def __init__(
        self,
        ledger: Ledger | None = None,
        telemetry: Telemetry | None = None,
        *,
        keeps_prompts: bool = False,
    ) -> None:
        self.keeps_prompts = keeps_prompts
        self._ledger = ledger
        self._kept_by = [each for each in (ledger, telemetry) if each is not None]
        self._writers = []
        if ledger:
            self._writers.append(Writer(ledger.write, idle=ledger.look))
        if telemetry:
            self._writers.append(Writer(telemetry.write))
        self._open: dict[int, ServedRequest] = {}
        """Records by their identity: clients may name several requests alike."""
        self.metrics = GatewayMetrics(self._open.values(), self._lost_records)

    def begin(self, endpoint: str) -> ServedRequest:
        """A request has arrived at an endpoint, named as routed."""
        record = ServedRequest(
            id=f"{_IDS.getrandbits(96):024x}",
            endpoint=endpoint,
            time=time.time(),
            t0=time.monotonic(),
        )
        self._open[id(record)] = record
        return record

    def end(self, record: ServedRequest) -> None:
        """A request has ended, however it did; further calls change nothing."""
        if self._open.pop(id(record), None) is None:
            return
        if record.t6 is None:
            record.t6 = time.monotonic()
        if not self.keeps_prompts:
            record.prompt = record.answer = None
        self.metrics.count(record)
        if self._ledger and record.t1 is not None and record.model:
            self._ledger.add(record)
        if record.endpoint not in _NOT_WRITTEN:
            for writer in self._writers:
                writer.add(record)

    def spending_of(self, key: str) -> Spending:
        """Usage of the key with this id, today and this month."""
        return self._ledger.spending_of(key) if self._ledger else NOTHING

    def close(self) -> None:
        """Write what has not been written yet, and close what it is kept by."""
        for writer in self._writers:
            writer.close()
        for each in self._kept_by:
            each.close()

    def _lost_records(self) -> int:
        lost_records = max((writer.lost_records for writer in self._writers), default=0)
        return lost_records + (self._ledger.lost_requests if self._ledger else 0)


class Writer:
    """Gives records to a sink in a thread of its own, which calls `idle` when there are none."""

    def __init__(self, sink: Sink, idle: Callable[[], None] = lambda: None) -> None:
        self.lost_records = 0
        self._sink = sink
        self._idle = idle
        self._waiting: deque[ServedRequest] = deque()
        self._closes = False
        self._thread = threading.Thread(target=self._run, name="request-records", daemon=True)
        self._thread.start()

    def add(self, record: ServedRequest) -> None:
        """Have a record written; it must not change any more."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(record)
        else:
            self.lost_records += 1

    def close(self) -> None:
        """Write what waits, and end the thread."""
        self._closes = True
        self._thread.join()

    def _run(self) -> None:
        for turn in count():
            closes = self._closes  # what waited before that is written now
            records = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                if records:
                    self._sink(records)
                elif turn % IDLE_TURNS == 0:
                    self._idle()
            except Exception:  # the next batch is none the worse for it
                logger.exception("records of %d requests were not written", len(records))
            if closes:
                return
            time.sleep(BATCH_S)  # to be woken by each record would cost more than to write it
