"""An engine in a process of its own, as the Triton model sees it.

    submit() ─> socket ─> engine_process.py ─> socket ─> on_response()

One thread hands over what the engine answers, because Triton's Python backend does not survive
responses sent from several threads; sending one takes a round trip to the server, for which the
engine does not wait.
"""

from __future__ import annotations

import heapq
import logging
import math
import os
import queue
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count

from tts.build.errors import EngineError
from tts.build.owner import Owner

from .cancellations import Cancellations
from .engine_messages import (
    Cancel,
    FromEngine,
    MessageReader,
    Open,
    Opened,
    Report,
    Submissions,
    encode,
)
from .generate_request import GenerateRequest
from .responses import (
    CLOSING,
    OnResponse,
    Response,
    end_process,
    guarded,
    how_it_ended,
    unavailable,
)
from .statistics import Statistics

logger = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-I", "-m", "tts.engines.engine_process")


class EngineClient:
    """One engine, open for requests until `close`. All methods may be called from any thread."""

    def __init__(
        self,
        opening: Open,
        *,
        cancel_check_s: float = 0.1,
        on_statistics: Callable[[Statistics], None] = lambda statistics: None,
        on_death: Callable[[], None] = end_process,
        command: tuple[str, ...] = _COMMAND,
    ) -> None:
        """Start the engine's process and wait until it is open.

        `on_statistics` and `on_death` are called from the thread that answers; `on_death` when the
        process has ended by itself and every request was failed. By default this process ends as
        well, which Triton's health shows and a supervised server survives. Raises EngineError if
        the engine cannot be opened.
        """
        self._on_statistics = on_statistics
        self._on_death = on_death
        self._tickets = count(1)
        self._answering: dict[int, OnResponse] = {}
        self._cancellations = Cancellations(cancel_check_s)
        self._calls: queue.SimpleQueue[tuple[float, Callable[[], None]]] = queue.SimpleQueue()
        """With the monotonic time after which each may be made."""
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        """Calls whose time has not come: a heap, in order where times are equal."""
        self._order = count()
        self._writing = threading.Lock()
        self._submissions = Submissions()
        self._closed = False
        self._owner = Owner("This engine")
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
        self._received = MessageReader(self._socket, FromEngine)
        try:
            self._write(encode(opening))
            early = self._opened(opening)
        except BaseException:  # Ctrl-C, too, while a large engine opens
            self._process.kill()
            self._process.wait()
            self._socket.close()
            raise
        self._wake = os.eventfd(0)
        self._thread = threading.Thread(
            target=self._run, args=(early,), name="answers", daemon=True
        )
        self._thread.start()

    @property
    def pid(self) -> int:
        """The engine's process."""
        return self._process.pid

    def submit(
        self,
        request: GenerateRequest,
        on_response: OnResponse,
        is_cancelled: Callable[[], bool] = bool,
        *,
        cold: bool = False,
    ) -> int:
        """Send a request to the engine; returns the ticket that `cancel` takes.

        `on_response` is called from the thread that answers until a response is final, exactly one
        of which comes. `is_cancelled` is polled from there. With `cold` the prefix cache is emptied
        before, or the request refused. Raises EngineError after `close`, and ForkError in a fork of
        the process that opened the engine.
        """
        (ticket,) = self.submit_all([(request, on_response)], is_cancelled, cold=cold)
        return ticket

    def submit_all(
        self,
        requests: Sequence[tuple[GenerateRequest, OnResponse]],
        is_cancelled: Callable[[], bool] = bool,
        *,
        cold: bool = False,
    ) -> list[int]:
        """The same for requests of one client, which the engine gets together: their tickets."""
        self._owner.require()
        if self._closed:
            raise EngineError("The engine is closed.")
        tickets = []
        with self._writing:  # what is sent first is known by those that follow
            data = bytearray()
            for request, on_response in requests:
                ticket = next(self._tickets)
                self._answering[ticket] = on_response
                self._cancellations.add(ticket, is_cancelled)
                data += self._submissions.encode(ticket, request, cold=cold)
                tickets.append(ticket)
            self._send(data)
        if len(self._answering) == len(tickets):
            self._interrupt()  # it may be waiting for answers alone
        return tickets

    def cancel(self, ticket: int) -> None:
        """End a request with the tokens it has; does nothing if it ended already."""
        self._owner.require()
        self._write(encode(Cancel(ticket)))

    def call(self, function: Callable[[], None], after_s: float = 0.0) -> None:
        """Run a function in the thread that answers, so many seconds from now or at the end."""
        self._owner.require()
        self._calls.put((time.monotonic() + after_s if after_s else 0.0, function))
        if threading.current_thread() is not self._thread:
            self._interrupt()

    def close(self) -> None:
        """Fail the remaining requests, end the engine's process and wait for it.

        In a fork of the process that opened it this does nothing: the engine is the parent's.
        """
        if not self._owner.is_here:
            return
        self._closed = True
        self._socket.shutdown(socket.SHUT_WR)
        self._thread.join()
        self._process.wait()
        self._socket.close()
        os.close(self._wake)

    def _opened(self, opening: Open) -> list[Report]:
        """Wait until the engine is open; what it has said since."""
        while not (messages := self._received.take()):
            if messages is None:
                how = how_it_ended(self._process.wait())
                raise EngineError(f"The process of the engine in {opening.engine_dir} {how}.")
        opened, *reports = messages
        assert isinstance(opened, Opened)
        if opened.error is not None:
            self._process.wait()
            raise EngineError(opened.error)
        return reports

    def _write(self, data: bytes) -> None:
        with self._writing:
            self._send(data)

    def _send(self, data: bytes | bytearray) -> None:
        # The engine reads between any two steps, whether or not its answers are taken. If it has
        # died, the thread that answers finds out and fails what is not answered.
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        except BaseException:  # Ctrl-C: after half a message no other can be told
            self._process.kill()
            raise

    def _interrupt(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _run(self, reports: list[Report] | None) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while reports is not None:
            for report in reports:
                self._take(report)
            reports = []
            self._make_calls()  # to which these have led; a question may take a round trip
            if (ticket := self._cancellations.ask()) is not None:
                self.cancel(ticket)
            due = self._due_s()
            ready = dict(poll.poll(None if due is None else 1000 * due))
            if self._wake in ready:
                os.eventfd_read(self._wake)
                self._make_calls()
            if self._socket.fileno() in ready:
                reports = self._received.take()
        self._end()

    def _due_s(self) -> float | None:
        """Seconds until there is something to do unasked; None if there is nothing."""
        due = self._cancellations.due_s()
        if not self._later:
            return due
        left = max(0.0, self._later[0][0] - time.monotonic())
        return left if due is None else min(due, left)

    def _make_calls(self, until: float | None = None) -> None:
        """Those whose time has come by then, or by now."""
        while not self._calls.empty():
            due, function = self._calls.get()
            if due:
                heapq.heappush(self._later, (due, next(self._order), function))
            else:
                guarded(function)
        while self._later and self._later[0][0] <= (until or time.monotonic()):
            guarded(heapq.heappop(self._later)[2])

    def _take(self, report: Report) -> None:
        for ticket, response in report.responses:
            self._answer(ticket, response)
        if report.statistics:
            guarded(self._on_statistics, report.statistics[-1])

    def _answer(self, ticket: int, response: Response) -> None:
        on_response = self._answering[ticket]
        if response.final:
            del self._answering[ticket]
            self._cancellations.discard(ticket)
        guarded(on_response, response)

    def _end(self) -> None:
        """The engine's process has ended, or is about to."""
        response = CLOSING
        if not self._closed:
            reason = f"the engine's process {how_it_ended(self._process.wait())}"
            logger.error("%s (PID %d); this model ends with it", reason, self._process.pid)
            response = unavailable(reason)
        for ticket in list(self._answering):
            self._answer(ticket, response)
        self._make_calls(math.inf)  # to which answers may have led
        if not self._closed:
            self._on_death()
