"""An engine in a process of its own, as the Triton model sees it: its client, in one thread.

    submit() ─> engine_client ─> engine_process ─> engine_client ─> on_response()

The thread also hands over what the engine answers, because Triton's Python backend does not survive
responses sent from several threads; sending one takes a round trip to the server, for which the
engine does not wait.
"""

from __future__ import annotations

import asyncio
import logging
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
        """Start the thread and the engine's process, and wait until the engine is open.

        `on_statistics` and `on_death` are called from the thread; `on_death` when the engine's
        process has ended by itself and every request was failed. By default this process ends as
        well, which Triton's health shows and a supervised server survives. Raises EngineError if
        the engine cannot be opened.
        """
        self._on_death = on_death
        self._tickets = count(1)
        self._cancellations = Cancellations(cancel_check_s)
        self._asking: asyncio.TimerHandle | None = None
        self._client: EngineClient
        self._loop = asyncio.new_event_loop()
        opened = Future[None]()
        self._life = self._loop.create_task(self._live(opening, on_statistics, opened))
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
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

        `on_response` is called from the thread until a response is final, exactly one of which
        comes. `is_cancelled` is polled from there. With `cold` the prefix cache is emptied before,
        or the request refused. Raises EngineError after `close`.
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
        self.call(partial(self._send, tickets, requests, is_cancelled, cold))
        return tickets

    def cancel(self, ticket: int) -> None:
        """End a request with the tokens it has; does nothing if it ended already."""
        self.call(lambda: self._client.cancel(ticket))

    def call(self, function: Callable[[], None], after_s: float = 0.0) -> None:
        """Run a function in the thread, so many seconds from now. Raises EngineError after
        `close`.
        """
        try:
            if after_s:
                self._loop.call_soon_threadsafe(self._loop.call_later, after_s, guarded, function)
            else:
                self._loop.call_soon_threadsafe(guarded, function)
        except RuntimeError as error:
            raise EngineError("The engine is closed.") from error

    def close(self) -> None:
        """Fail the remaining requests, end the engine's process and the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._life.cancel)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(asyncio.wait({self._life}))

    async def _live(
        self, opening: Open, on_statistics: Callable[[Statistics], None], opened: Future[None]
    ) -> None:
        try:
            self._client = await EngineClient.open(
                opening, on_statistics=on_statistics, on_death=self._died, keeps_output=False
            )
        except BaseException as error:
            opened.set_exception(error)
            return
        opened.set_result(None)
        try:
            await self._loop.create_future()  # until `close`
        finally:
            await self._client.aclose()  # what its last answers lead to is done meanwhile

    def _send(
        self,
        tickets: Sequence[int],
        requests: Sequence[tuple[GenerateRequest, OnResponse]],
        is_cancelled: Callable[[], bool],
        cold: bool,
    ) -> None:
        for ticket, (request, on_response) in zip(tickets, requests, strict=True):
            answer = partial(self._answer, ticket, on_response)
            self._client.submit(request, answer, cold=cold, ticket=ticket)
            self._cancellations.add(ticket, is_cancelled)
        if self._asking is None:
            self._ask_when_due()

    def _answer(self, ticket: int, on_response: OnResponse, response: Response) -> None:
        if response.final:
            self._cancellations.discard(ticket)
        on_response(response)

    def _ask(self) -> None:
        if (ticket := self._cancellations.ask()) is not None:
            self._client.cancel(ticket)
        self._ask_when_due()

    def _ask_when_due(self) -> None:
        due_s = self._cancellations.due_s()
        self._asking = None if due_s is None else self._loop.call_later(due_s, self._ask)

    def _died(self, how: str, said: str | None) -> None:
        logger.error("the engine's process %s (PID %d); this model ends with it", how, self.pid)
        self._loop.call_soon(self._on_death)  # after all to which the last answers have led
