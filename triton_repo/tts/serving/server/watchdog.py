"""Ending the wait for a server that does nothing any more while it loads."""

from __future__ import annotations

import time
from contextlib import suppress

import psutil

from .service import Service
from .state import ProcessIdentity, TransientStartError

STALL_S = 600.0
"""A server that has done nothing for so long while it loads is given up."""
OPEN_STALL_S = 30.0
"""A server that has opened its engines is given up after so long: the rest takes a moment."""
_BUSY = 0.1  # of one core: less is what a server spends on waiting
_CHECK_S = 1.0


class Watchdog:
    """Ends the wait for a server that does nothing any more, however long it may load."""

    def __init__(
        self, service: Service, process: ProcessIdentity, stall_s: float = STALL_S
    ) -> None:
        """`process` is the server's, or one above it."""
        self._service = service
        self._process = process
        self._stall_s = stall_s
        self._began = self._checked = self._active = time.monotonic()
        self._log_bytes, self._cpu_s = self._seen()

    def check(self) -> None:
        """Raise TransientStartError if for `stall_s` the log did not grow and no process computed.

        Where the engines are open it is OPEN_STALL_S. All by the monotonic clock.
        """
        now = time.monotonic()
        passed = now - self._checked
        if passed < min(_CHECK_S, self._stall_s / 4):
            return
        self._checked = now
        log_bytes, cpu_s = self._seen()
        if log_bytes > self._log_bytes or cpu_s - self._cpu_s > _BUSY * passed:
            self._active = now
        self._log_bytes, self._cpu_s = log_bytes, cpu_s
        loading = self._service.loading(now - self._began)
        limit = min(self._stall_s, OPEN_STALL_S) if loading.is_open else self._stall_s
        if now - self._active > limit:
            raise TransientStartError(
                f"The {self._service.title} is not ready, and has done nothing for {limit:.0f} s "
                f"({loading}): its log did not grow, its processes did not compute.",
                hint=f"Its log: {self._service.log}",
            )

    def _seen(self) -> tuple[int, float]:
        """Bytes of the log, and CPU seconds of the server's processes on this machine."""
        log_bytes, cpu_s = 0, 0.0
        with suppress(OSError):
            log_bytes = self._service.log.stat().st_size
        if server := self._process.process():
            with suppress(psutil.Error):
                for process in [server, *server.children(recursive=True)]:
                    with suppress(psutil.Error):
                        times = process.cpu_times()
                        cpu_s += times.user + times.system
        return log_bytes, cpu_s
