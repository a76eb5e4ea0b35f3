"""The thread that takes records of ended requests where they are kept, in batches."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

from .record import RequestRecord

logger = logging.getLogger(__name__)

BATCH_S = 0.025
"""How long a batch is gathered. With the time to write it a process that is killed loses at most
what ended in its last 100 ms."""
MOST_WAITING = 100_000
"""Records that wait for a slow disk or collector; those above are lost, and counted."""

Sink = Callable[[Sequence[RequestRecord]], None]


class Writer:
    """Gives records to sinks, in a thread of its own; `add` costs a microsecond."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.lost = 0
        """Records that nobody has had time for."""
        self._sinks = sinks
        self._waiting: queue.SimpleQueue[RequestRecord | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="request-records", daemon=True)
        self._thread.start()

    def add(self, record: RequestRecord) -> None:
        """Have a record written; it must not change any more."""
        if self._waiting.qsize() < MOST_WAITING:
            self._waiting.put(record)
        else:
            self.lost += 1

    def close(self) -> None:
        """Write what waits, and end the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            batch = [self._waiting.get()]
            due = time.monotonic() + BATCH_S
            while batch[-1] is not None and (left := due - time.monotonic()) > 0:
                try:
                    batch.append(self._waiting.get(timeout=left))
                except queue.Empty:
                    break
            ended = batch[-1] is None
            records = [record for record in batch if record is not None]
            for sink in self._sinks if records else ():
                try:
                    sink(records)
                except Exception:  # the others, and the next batch, are none the worse for it
                    logger.exception("records of %d requests were not written", len(records))
