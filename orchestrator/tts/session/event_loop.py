"""The event loop of a command, and one in a thread of its own for callers that block.

The latter also works where the caller's thread runs a loop already (a notebook). Ctrl-C in the
caller's thread cancels the call, waits until it has ended, and raises KeyboardInterrupt. A second
one gives up code that holds the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import gc
import queue
import signal
import threading
import time
from asyncio import Runner
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from types import FrameType
from typing import Any, ParamSpec, Self, TypeVar

from tts.base.errors import Interrupted, SessionError, Terminated
from tts.base.owner import Owner

P = ParamSpec("P")
T = TypeVar("T")

_POLL_S = 0.1
STUCK_S = 0.5
"""Code that has not let the loop take a signal up for so long is broken off by the next."""


@contextlib.contextmanager
def enough_files() -> Iterator[None]:
    """Raise SessionError if this process or the machine may open no more files."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise SessionError(
            f"The session cannot open another file: {error.strerror}.",
            hint="Raise the limit (ulimit -n 1024), or close files that are not needed.",
        ) from error


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop, or of asyncio where there is none; SessionError if no files are left."""
    with enough_files():
        try:
            import uvloop
        except ImportError:  # Windows
            return asyncio.new_event_loop()
        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on such a loop, for a command."""
    gc.freeze()  # what is imported lives on: a collection of all that is old need not look at it
    try:
        with Runner(loop_factory=new_event_loop) as runner:
            result: T = runner.run(main)
    finally:
        gc.unfreeze()
        main.close()  # or Python warns of it, where there is no loop that could have begun it
    return result


def interruptible(
    running: Coroutine[Any, Any, T],
    say: Callable[[str], None],
    *,
    drain: Callable[[], bool] = lambda: False,
) -> T:
    """`run_loop` for a command: the first Ctrl-C or SIGTERM becomes an orderly stop.

    It raises Interrupted or, after SIGTERM, Terminated. `drain` may handle a SIGTERM by returning
    True: then the command ends by itself, and the next signal stops it.

    Once that has begun, further ones are ignored: what remains is bounded, and a cut-short clean-up
    would leave a server behind. Where code holds the loop up, such as a strategy that never
    returns, a second signal breaks it off, half a second after the first at the earliest.
    """
    received: signal.Signals | None = None
    pending_since: float | None = None
    is_broken_off = False

    async def run() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(running)

        def interrupt(number: signal.Signals) -> None:
            nonlocal received, pending_since
            pending_since = None
            if received is None and not (number is signal.SIGTERM and drain()):
                received = number
                say("stopping ...")
                task.cancel()

        def arrived(number: int, frame: FrameType | None) -> None:
            nonlocal received, pending_since, is_broken_off
            if received is not None:
                return
            if pending_since is None:
                pending_since = time.monotonic()
            elif time.monotonic() - pending_since >= STUCK_S:
                received, is_broken_off = signal.Signals(number), True
                raise KeyboardInterrupt
            loop.call_soon_threadsafe(interrupt, signal.Signals(number))

        for number in before:
            signal.signal(number, arrived)
        return await task

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = run_loop(run())
    except BaseException as error:
        if received is None or (isinstance(error, Exception) and not is_broken_off):
            raise
    finally:
        running.close()  # where the loop has not begun it
        for number, handler in before.items():
            signal.signal(number, handler if received is None else signal.SIG_IGN)
    if received is not None:  # also where it ended by itself just then: what follows is not wanted
        if received is signal.SIGTERM:
            raise Terminated("Stopped by SIGTERM.")
        raise Interrupted("Interrupted.")
    return result


class Inbox(queue.SimpleQueue[Callable[[], None] | asyncio.Task[Any]]):
    """The work of a caller's thread while it waits: callbacks, then the finished task."""

    def posting(self, function: Callable[P, None]) -> Callable[P, None]:
        """Wrap `function`: called from the loop, it runs in the caller's thread."""

        def post(*args: P.args, **kwargs: P.kwargs) -> None:
            self.put(functools.partial(function, *args, **kwargs))

        return post

    async def taking(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Iterate over `items` from the loop; each is taken in the caller's thread.

        What they raise ends the call that waits there; the loop sees itself cancelled.
        """
        loop = asyncio.get_running_loop()
        iterator, end = iter(items), object()

        def answer(reply: asyncio.Future[Any], item: object) -> None:
            if not reply.done():
                reply.set_result(item)

        def take(reply: asyncio.Future[Any]) -> None:
            loop.call_soon_threadsafe(answer, reply, next(iterator, end))

        while True:
            reply: asyncio.Future[Any] = loop.create_future()
            self.put(functools.partial(take, reply))
            if (item := await reply) is end:
                return
            yield item


class LoopThread:
    """A thread that runs an event loop until `stop`."""

    def __init__(self) -> None:
        self.owner = Owner("This session")
        self._loop = new_event_loop()
        self._stopped = self.is_held = False
        # a daemon: a program that never closes its session can still end
        self._thread = threading.Thread(target=self._run, name="tts session", daemon=True)
        self._thread.start()

    def run(
        self, coroutine: Coroutine[Any, Any, T], inbox: Inbox | None = None, *, finish: bool = False
    ) -> T:
        """Run a coroutine to its end; meanwhile, carry out the calls posted to `inbox`.

        With `finish`, Ctrl-C does not cancel it, but is raised when the coroutine has ended.
        """
        try:
            self.owner.require()
            if self._stopped:
                raise SessionError("The session is closed.")
            if self.is_held:
                raise SessionError("The session is held by code that has not returned.")
        except SessionError:
            coroutine.close()
            raise
        inbox = inbox or Inbox()
        started: list[asyncio.Task[T]] = []

        def start() -> None:
            started.append(self._loop.create_task(coroutine))
            started[0].add_done_callback(inbox.put)

        with _CtrlC(inbox) as ctrl_c:
            self._loop.call_soon_threadsafe(start)
            try:
                while not isinstance(item := _next(inbox), asyncio.Task):
                    ctrl_c.call(item)
            except BaseException:  # Ctrl-C, or a callback has failed
                self._await_end(started, inbox, cancel=not finish)
                raise
        if ctrl_c.pressed:
            raise KeyboardInterrupt
        result: T = item.result()
        return result

    def stop(self) -> None:
        """Stop the loop and wait for the thread; nothing may be running any more."""
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_held:
            self._thread.join()

    def _await_end(self, started: list[asyncio.Task[Any]], inbox: Inbox, *, cancel: bool) -> None:
        """Wait until the task has ended, which takes a bounded time once the loop cancels it.

        Another Ctrl-C before the loop gets to that leaves the task alone: code holds the loop.
        """
        reached = threading.Event()

        def reach() -> None:
            reached.set()
            self.is_held = False
            if cancel:
                started[0].cancel()

        self._loop.call_soon_threadsafe(reach)
        while not (started and started[0].done()):
            with contextlib.suppress(queue.Empty):
                # what is still posted is dropped
                if inbox.get(timeout=_POLL_S) is _interrupt and not reached.is_set():
                    self.is_held = True
                    return
        if not started[0].cancelled():
            started[0].exception()  # seen: what made the caller stop is raised instead

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


class _CtrlC:
    """Ctrl-C while the main thread waits: put into its inbox, rather than raised just anywhere.

    Raised between two lines of a clean-up it would leave a server behind. Only where a program has
    not set a handler of its own.
    """

    def __init__(self, inbox: Inbox) -> None:
        self.pressed = False
        self._inbox = inbox
        self._calling = False
        self._ours = False

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        self._ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:
            signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *error: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def call(self, function: Callable[[], None]) -> None:
        """Carry out a callback, which Ctrl-C interrupts at once."""
        self._calling = True
        try:
            function()
        finally:
            self._calling = False

    def _press(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        if self._calling:
            self._calling = False
            raise KeyboardInterrupt
        self._inbox.put(_interrupt)


def _next(inbox: Inbox) -> Callable[[], None] | asyncio.Task[Any]:
    """What comes next. A signal that arrives just before a wait begins does not end it, so its
    handler would be called after the wait: hence many short ones.
    """
    while True:
        with contextlib.suppress(queue.Empty):
            return inbox.get(timeout=_POLL_S)


def _interrupt() -> None:
    raise KeyboardInterrupt
