"""Ctrl-C and SIGTERM as an orderly stop, for commands that run an event loop of their own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tts.build.errors import Interrupted, Terminated

from .event_loop import run_loop

TERMINATED = "Stopped by SIGTERM."

T = TypeVar("T")


def interruptible(
    running: Coroutine[Any, Any, T],
    say: Callable[[str], None],
    run_loop: Callable[[Coroutine[Any, Any, T]], T] = run_loop,
    *,
    drain: Callable[[], bool] = lambda: False,
) -> T:
    """A function like `asyncio.run` that turns the first Ctrl-C or SIGTERM into an orderly stop.

    It raises Interrupted or, after SIGTERM, Terminated. `drain` may handle a SIGTERM by returning
    True: then the command ends by itself, and the next signal stops it.

    Further ones are ignored: what remains is bounded (cancel requests, close the log, stop the
    server), and a cut-short clean-up would leave a server behind.
    """
    received: signal.Signals | None = None

    async def run() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(running)

        def interrupt(number: signal.Signals) -> None:
            nonlocal received
            if received is None and number is signal.SIGTERM and drain():
                return
            if received is None:
                received = number
                say("stopping ...")
                task.cancel()

        for number in before:
            loop.add_signal_handler(number, interrupt, number)
        return await task

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = run_loop(run())
    except asyncio.CancelledError:
        if received is None:
            raise
    finally:
        running.close()  # where the loop has not begun it
        # uvloop leaves its own handlers, which do nothing once the loop is closed
        for number, handler in before.items():
            signal.signal(number, handler if received is None else signal.SIG_IGN)
    if received is not None:  # also where it ended by itself just then: what follows is not wanted
        if received is signal.SIGTERM:
            raise Terminated(TERMINATED)
        raise Interrupted("Interrupted.")
    return result
