"""An engine in a process of its own, as the Triton model sees it: its client, in two threads.

    submit() ─> engine_client ─> engine_process ─> engine_client ─> on_response()

One runs the client's event loop. The other hands over what the engine answers, because Triton's
Python backend does not survive responses sent from several threads; sending one takes a round trip
to the server, for which neither the engine nor what is sent to it waits.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count

from tts.build.errors import EngineError

from .cancellations import Cancellations
from .engine_client import EngineClient
from .engine_messages import Open
from .generate_request import GenerateRequest
from .responses import OnResponse, Response, end_process, guarded
from .statistics import Statistics

logger = logging.getLogger(__name__)


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
        """Start the threads and the engine's process, and wait until the engine is open.

        `on_statistics` and `on_death` are called from the thread that answers; `on_death` when the
        engine's process has ended by itself and every request was failed. By default this process
        ends as well, which Triton's health shows and a supervised server survives. Raises
        EngineError if the engine cannot be opened.
        """
        self._on_statistics = on_statistics
        self._on_death = on_death
        self._tickets = count(1)
        self._cancellations = Cancellations(cancel_check_s)
        self._is_asking = False
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._come: list[Callable[[], None]] = []
        """Answers that came together, not handed over yet."""
        self._client: EngineClient
        self._loop = asyncio.new_event_loop()
        opened = Future[None]()
        self._life = self._loop.create_task(self._live(opening, opened))
        self._answers = threading.Thread(target=self._make_calls, name="answers", daemon=True)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._answers.start()
        self._thread.start()
        try:
            opened.result()
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
        """The same for requests of one client, which the engine gets together: their tickets."""
        tickets = [next(self._tickets) for _ in requests]
        self._calls.put(partial(self._watch, tickets, is_cancelled))
        self._in_loop(self._send, tickets, requests, cold)
        return tickets

    def cancel(self, ticket: int) -> None:
        """End a request with the tokens it has; does nothing if it ended already."""
        self._in_loop(lambda: self._client.cancel(ticket))

    def call(self, function: Callable[[], None], after_s: float = 0.0) -> None:
        """Run a function in the thread that answers, so many seconds from now; not at the end."""
        if after_s:
            self._in_loop(self._loop.call_later, after_s, self._calls.put, function)
        else:
            self._calls.put(function)

    def _in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError as error:
            raise EngineError("The engine is closed.") from error

    def close(self) -> None:
        """Fail the remaining requests, end the engine's process and the threads."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._life.cancel)
            self._thread.join()
            self._after_all(None)
            self._answers.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(asyncio.wait({self._life}))

    def _make_calls(self) -> None:
        while (function := self._calls.get()) is not None:
            guarded(function)

    def _after_all(self, function: Callable[[], None] | None) -> None:
        """Call it, or end the thread that answers, after all to which the last answers lead."""
        self._calls.put(lambda: self._calls.put(function))

    async def _live(self, opening: Open, opened: Future[None]) -> None:
        try:
            self._client = await EngineClient.open(
                opening,
                on_statistics=lambda statistics: self.call(
                    partial(self._on_statistics, statistics)
                ),
                on_death=self._died,
                keeps_output=False,
            )
        except BaseException as error:
            opened.set_exception(error)
            return
        opened.set_result(None)
        try:
            await self._loop.create_future()  # until `close`
        finally:
            await self._client.aclose()

    def _send(
        self,
        tickets: Sequence[int],
        requests: Sequence[tuple[GenerateRequest, OnResponse]],
        cold: bool,
    ) -> None:
        for ticket, (request, on_response) in zip(tickets, requests, strict=True):
            answer = partial(self._take, ticket, on_response)
            self._client.submit(request, answer, cold=cold, ticket=ticket)

    def _take(self, ticket: int, on_response: OnResponse, response: Response) -> None:
        if not self._come:
            self._loop.call_soon(self._hand_over)
        self._come.append(partial(self._answer, ticket, on_response, response))

    def _hand_over(self) -> None:
        self._calls.put(partial(_all, self._come))
        self._come = []

    def _answer(self, ticket: int, on_response: OnResponse, response: Response) -> None:
        if response.final:
            self._cancellations.discard(ticket)
        on_response(response)

    def _watch(self, tickets: Sequence[int], is_cancelled: Callable[[], bool]) -> None:
        for ticket in tickets:
            self._cancellations.add(ticket, is_cancelled)
        if not self._is_asking:
            self._ask_when_due()

    def _ask(self) -> None:
        if (ticket := self._cancellations.ask()) is not None:
            self.cancel(ticket)
        self._ask_when_due()

    def _ask_when_due(self) -> None:
        due_s = self._cancellations.due_s()
        self._is_asking = due_s is not None
        if due_s is not None:
            self._in_loop(self._loop.call_later, due_s, self._calls.put, self._ask)

    def _died(self, how: str, said: str | None) -> None:
        logger.error("the engine's process %s (PID %d); this model ends with it", how, self.pid)
        self._loop.call_soon(self._after_all, self._on_death)  # the last answers come first


def _all(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        guarded(function)
