"""Ctrl-C and SIGTERM as an orderly stop, for commands that run an event loop of their own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tts.build.errors import Interrupted

T = TypeVar("T")


def interruptible(running: Coroutine[Any, Any, T], say: Callable[[str], None]) -> T:
    """`asyncio.run` that turns the first Ctrl-C (or SIGTERM) into an orderly stop: Interrupted.

    Further ones are ignored: what remains is bounded (cancel requests, close the log, stop the
    server), and a cut-short clean-up would leave a server behind.
    """
    interrupted = False

    async def run() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(running)

        def interrupt() -> None:
            nonlocal interrupted
            if not interrupted:
                interrupted = True
                say("stopping ...")
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        return await task

    try:
        result = asyncio.run(run())
    except asyncio.CancelledError:
        if not interrupted:
            raise
    if interrupted:  # also where it ended by itself just then: what follows it is not wanted
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise Interrupted("Interrupted.")
    return result
