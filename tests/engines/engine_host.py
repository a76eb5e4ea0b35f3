"""An engine on a thread of this process.

Under Triton an engine has a process of its own (engine_thread.py).
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import Any

from tts.engines.engine import Engine, EngineCommand
from tts.engines.generate_request import GenerateRequest
from tts.engines.responses import OnResponse


class EngineHost(Engine):
    """One engine, open for requests until `close`.

    `submit`, `stop`, `call` and `close` may be called from any thread.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Start the thread and open the engine there, as `Engine` does; raises what that raises."""
        self._tickets = count(1)
        self._inbox: queue.SimpleQueue[EngineCommand | None] = queue.SimpleQueue()
        opened = Future[None]()
        self._thread = threading.Thread(
            target=self._live, args=(opened, arguments, options), name="engine", daemon=True
        )
        self._thread.start()
        opened.result()

    def submit(self, request: GenerateRequest, on_response: OnResponse) -> int:
        """Queue a request; returns its ticket.

        `on_response` is called from the engine thread until a response is final, exactly one of
        which comes.
        """
        ticket = next(self._tickets)
        self.call(partial(self.accept, ticket, request, on_response))
        return ticket

    def stop(self, ticket: int) -> None:
        """End a request with the tokens it has; does nothing if it ended already."""
        self.call(partial(self.cancel, ticket))

    def call(self, function: EngineCommand) -> None:
        """Run a function in the engine thread, between two steps."""
        self._inbox.put(function)

    def _live(
        self, opened: Future[None], arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        # All in one thread: OpenVINO gives the one that opens it another stack for signals, and
        # takes that away in the one that closes it. The first would die of its next signal.
        try:
            super().__init__(*arguments, **options)
        except BaseException as error:
            opened.set_exception(error)
        else:
            opened.set_result(None)
            self.run(self._inbox)

    def close(self) -> None:
        """Fail the remaining requests, end the engine thread and wait for it."""
        self._inbox.put(None)
        self._thread.join()
