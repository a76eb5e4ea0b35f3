"""A plan on a server, from the command line: server, progress, health, Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tts.build.errors import EndpointError, Interrupted
from tts.build.spec import Deployment
from tts.reports.console import say
from tts.reports.live_tree import ProgressBar
from tts.serving.server.health import observe
from tts.serving.server.lookup import find_server
from tts.serving.server.start import start_server

from .run import Plan, Progress, execute

TICK_S = 0.1  # how often progress is drawn
HEALTH_CHECK_S = 1.0

T = TypeVar("T")


class _Display(Protocol):
    def update(self) -> None: ...


def run_plan(
    plan: Plan, folder: Path, progress: Progress, *, resume: bool, title: str = "problems"
) -> None:
    """Run or continue a plan on the deployment's server, drawing progress under `title`."""
    bar = ProgressBar(progress, title)
    with serving(plan.deployment) as (address, check), bar.shown():
        running = execute(plan, folder, address, resume=resume, progress=progress)
        interruptible(watched(running, bar, check))


@contextlib.contextmanager
def serving(deployment: Deployment) -> Iterator[tuple[str, Callable[[], None]]]:
    """Address and health check of the deployment's server: the one that answers, or a new one.

    A new one is stopped at the end of the block, whatever happens.
    """
    if found := find_server(deployment):
        say(f"Using {found}")
        # of one that is not ours we see no process: the requests tell, and outlast its restart
        yield found.addresses.grpc, observe(found).check if found.server else lambda: None
        return
    with start_server(deployment, say=say) as server:
        yield server.addresses.grpc, server.check


async def watched(
    running: Coroutine[Any, Any, T], display: _Display, check: Callable[[], None]
) -> T:
    """Run to the end, drawing progress and checking the server's health on the way."""
    run = asyncio.ensure_future(running)
    checked_at = asyncio.get_running_loop().time()
    try:
        while not run.done():
            await asyncio.wait({run}, timeout=TICK_S)
            display.update()
            now = asyncio.get_running_loop().time()
            if now - checked_at > HEALTH_CHECK_S:
                checked_at = now
                check()
        return run.result()
    except EndpointError:
        check()  # says which process died, if one did; else the request's own error stands
        raise
    finally:
        run.cancel()
        await asyncio.wait({run})


def interruptible(running: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` that turns the first Ctrl-C (or SIGTERM) into an orderly stop.

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
        return asyncio.run(run())
    except asyncio.CancelledError:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise Interrupted("Interrupted.") from None
