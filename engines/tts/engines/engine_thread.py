"""An engine in a process of its own, as the Triton model sees it: its client, and a thread for it.

    submit() ─> engine_process ─> engine_client ─> on_response()

The thread runs the client's event loop and hands over what the engine answers, because Triton's
Python backend does not survive responses sent from several threads. Sending one takes a round trip
to the server, for which requests do not wait: whoever submits them writes them to the engine. The
thread also asks whether clients have gone, which Triton never tells by itself.
"""

from __future__ import annotations

import asyncio
import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count

from tts.base.errors import EngineError

from .engine_client import EngineClient
from .engine_messages import Open
from .generate_request import GenerateRequest
from .responses import OnResponse, Response, end_process
from .statistics import Statistics

logger = logging.getLogger(__name__)

POLLING_SHARE = 0.02
"""Share of the asking thread's time that the questions may take."""


class Cancellations:
    """Questions whether requests were cancelled, asked one at a time.

    Each may be a round trip to the server, milliseconds on a busy machine: the one not asked for
    longest comes first, none more often than its period, and all of them together take a small
    share of the time. Most requests are answered before their turn. All of it in one thread.
    """

    def __init__(self, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._period_s = period_s
        self._clock = clock
        self._questions: dict[int, tuple[Callable[[], bool], float]] = {}
        """Ticket -> question, and when to ask it next; the next one first."""
        self._rest_until = 0.0

    def add(self, ticket: int, is_cancelled: Callable[[], bool]) -> None:
        """Ask for a request from now on."""
        self._questions[ticket] = is_cancelled, self._clock() + self._period_s

    def discard(self, ticket: int) -> None:
        """Ask for a request no more; it may not be known."""
        self._questions.pop(ticket, None)

    def due_s(self) -> float | None:
        """Seconds until the next question; None if there is none."""
        _, at = next(iter(self._questions.values()), (None, None))
        return None if at is None else max(0.0, max(at, self._rest_until) - self._clock())

    def ask(self) -> int | None:
        """Ask the next question, if it is due; the ticket of a request that was cancelled."""
        if self.due_s() != 0:
            return None
        ticket = next(iter(self._questions))
        is_cancelled, _ = self._questions.pop(ticket)
        began = self._clock()
        cancelled = answer_of(is_cancelled)
        now = self._clock()
        self._rest_until = now + (now - began) / POLLING_SHARE
        if cancelled:
            return ticket
        self.add(ticket, is_cancelled)
        return None


def answer_of(question: Callable[[], bool]) -> bool:
    """The answer of Triton or the engine; False, and a line in the log, if the question fails."""
    try:
        return question()
    except Exception:
        logger.exception("a question to Triton or to the engine failed")
        return False


class _DirectClient(EngineClient):
    """A client whose messages are sent by `flush`, in the thread that calls it."""

    def _send(self, message: bytes) -> None:
        self._outbox.append(message)

    def flush(self) -> None:
        """Send what was submitted. The engine reads between any two steps, so this does not last.

        If the engine has ended, the loop finds out and fails what is not answered.
        """
        data = memoryview(b"".join(self._outbox))
        self._outbox.clear()
        while data:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                room = select.poll()
                room.register(self._socket, select.POLLOUT)
                room.poll()
            except (OSError, ValueError):  # it is closed
                return


class EngineThread:
    """One engine, open for requests until `close`. All methods may be called from any thread."""

    def __init__(
        self,
        opening: Open,
        *,
        cancel_check_s: float = 0.1,
        on_statistics: Callable[[Statistics], None] = lambda statistics: None,
        on_death: Callable[[], None] = end_process,
    ) -> None:
        """Start the thread and the engine's process, and wait until the engine is open.

        `on_statistics` and `on_death` are called from the thread that answers; `on_death` when the
        engine's process has ended by itself and every request was failed. By default this process
        ends as well, which Triton's health shows and a supervised server survives. Raises
        EngineError if the engine cannot be opened.
        """
        self._on_statistics = on_statistics
        self._on_death = on_death
        self._tickets = count(1)
        self._sending = threading.Lock()
        self._closed = False
        self._cancellations = Cancellations(cancel_check_s)
        self._is_asking = False
        self._unwatched: deque[tuple[int, Callable[[], bool]]] = deque()
        """Requests that `_cancellations`, which is the thread's, does not know yet."""
        self._client: _DirectClient
        self._loop = asyncio.new_event_loop()
        is_ready = Future[None]()
        self._life = self._loop.create_task(self._live(opening, is_ready))
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
        self._thread.start()
        try:
            is_ready.result()
        except BaseException:  # Ctrl-C, too, while a large engine opens
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The engine's process."""
        return self._client.pid

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
        before, or the request refused. Raises EngineError after `close`.
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
        """Tickets of the requests of one client, which the engine gets together."""
        with self._sending:
            if self._closed:
                raise EngineError("The engine is closed.")
            tickets = []
            for request, on_response in requests:
                ticket = next(self._tickets)
                self._unwatched.append((ticket, is_cancelled))
                answer = partial(self._answer, ticket, on_response)
                self._client.submit(request, answer, cold=cold, ticket=ticket)
                tickets.append(ticket)
            self._client.flush()
        if not self._is_asking:  # else the thread comes to them by itself
            self.call(self._start_asking)
        return tickets

    def cancel(self, ticket: int) -> None:
        """End a request with the tokens it has; does nothing if it ended already."""
        with self._sending:
            self._client.cancel(ticket)
            self._client.flush()

    def call(self, function: Callable[[], None], after_s: float = 0.0) -> None:
        """Run a function in the thread that answers, so many seconds from now; not at the end."""
        if threading.current_thread() is not self._thread:
            self._loop.call_soon_threadsafe(self.call, function, after_s)
        elif after_s:
            self._loop.call_later(after_s, function)
        else:
            self._loop.call_soon(function)

    def close(self) -> None:
        """Fail the remaining requests, end the engine's process and the thread."""
        with self._sending:
            self._closed = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._life.cancel)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(asyncio.wait({self._life}))

    async def _live(self, opening: Open, is_ready: Future[None]) -> None:
        try:
            self._client = await _DirectClient.open(
                opening,
                on_statistics=self._on_statistics,
                on_death=self._died,
                keeps_output=False,
            )
        except BaseException as error:
            is_ready.set_exception(error)
            return
        is_ready.set_result(None)
        try:
            await self._loop.create_future()  # until `close`
        finally:
            await self._client.aclose()

    def _answer(self, ticket: int, on_response: OnResponse, response: Response) -> None:
        if response.final:
            self._watch()
            self._cancellations.discard(ticket)
        on_response(response)

    def _watch(self) -> None:
        while self._unwatched:
            self._cancellations.add(*self._unwatched.popleft())

    def _start_asking(self) -> None:
        if not self._is_asking:
            self._ask_when_due()

    def _ask(self) -> None:
        if (ticket := self._cancellations.ask()) is not None:
            self.cancel(ticket)
        self._ask_when_due()

    def _ask_when_due(self) -> None:
        self._is_asking = False  # before it looks: what is submitted afterwards calls for it
        self._watch()
        due_s = self._cancellations.due_s()
        if due_s is not None:
            self._is_asking = True
            self._loop.call_later(due_s, self._ask)

    def _died(self, how: str, words: str | None) -> None:
        logger.error("the engine's process %s (PID %d); this model ends with it", how, self.pid)
        self._loop.call_soon(self._on_death)  # after all to which the last answers lead
