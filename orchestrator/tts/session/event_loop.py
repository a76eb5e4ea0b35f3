"""An event loop in a thread of its own, for callers that block.

It works where the caller's thread runs a loop already (a notebook). What a coroutine wants called
back is called in the caller's thread, while that waits. Ctrl-C in the caller's thread cancels what
it waits for, waits until that has ended, and goes on as KeyboardInterrupt.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

from tts.build.errors import SessionError

P = ParamSpec("P")
T = TypeVar("T")

_POLL_S = 0.1


class Inbox(queue.SimpleQueue[Callable[[], None] | asyncio.Task[Any]]):
    """What a caller's thread is to do while it waits: calls, then the task that has ended."""

    def posting(self, function: Callable[P, None]) -> Callable[P, None]:
        """`function`, to be called from the loop and carried out in the caller's thread."""

        def post(*args: P.args, **kwargs: P.kwargs) -> None:
            self.put(functools.partial(function, *args, **kwargs))

        return post


class LoopThread:
    """A thread that runs an event loop until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopped = False
        # a daemon: a program that never closes its session can still end
        self._thread = threading.Thread(target=self._run, name="tts session", daemon=True)
        self._thread.start()

    def run(
        self, coroutine: Coroutine[Any, Any, T], inbox: Inbox | None = None, *, finish: bool = False
    ) -> T:
        """Run a coroutine to its end, carrying out meanwhile what is posted to `inbox`.

        With `finish` Ctrl-C does not cancel it: it is raised when the coroutine has ended.
        """
        if self._stopped:
            coroutine.close()
            raise SessionError("The session is closed.")
        inbox = inbox or Inbox()
        started: list[asyncio.Task[T]] = []

        def start() -> None:
            started.append(self._loop.create_task(coroutine))
            started[0].add_done_callback(inbox.put)

        self._loop.call_soon_threadsafe(start)
        try:
            while not isinstance(item := inbox.get(), asyncio.Task):
                item()
        except BaseException:  # Ctrl-C, or a callback has failed
            with _ctrl_c_ignored():
                if not finish:
                    self._loop.call_soon_threadsafe(lambda: started[0].cancel())
                _await_end(started, inbox)
            raise
        result: T = item.result()
        return result

    def stop(self) -> None:
        """Stop the loop and wait for the thread; nothing may be running any more."""
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


def _await_end(started: list[asyncio.Task[Any]], inbox: Inbox) -> None:
    """Wait until the task has ended, which takes a bounded time once it was cancelled."""
    while not (started and started[0].done()):
        with contextlib.suppress(queue.Empty):
            inbox.get(timeout=_POLL_S)  # what is still posted is dropped
    if not started[0].cancelled():
        started[0].exception()  # marks it as seen: what made the caller stop is raised instead


@contextlib.contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """A clean-up that is cut short would leave a server behind; it takes a bounded time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
