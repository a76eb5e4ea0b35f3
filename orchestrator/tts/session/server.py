"""The server that a session uses: the one that answers, or one of its own.

Its own is kept running as `tts serve` keeps one, for as long as the session lasts.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tts.build.errors import EndpointError, Interrupted, ServerError
from tts.build.spec import Deployment
from tts.serving.server.health import observe, watch
from tts.serving.server.loading import Loading
from tts.serving.server.lookup import find_server
from tts.serving.server.supervise import BackgroundServer, wait_for_server
from tts.serving.server.supervisor import comes_back

from .engine_steps import OpenSteps, steps_of

HEALTH_CHECK_S = 1.0
_LOOK_S = 0.05

T = TypeVar("T")


@dataclass(frozen=True)
class Server:
    """Where the deployment is served, and how to see that it still is."""

    address: str
    """Host and port of gRPC."""
    check: Callable[[], None]
    """Raises ServerError naming what died for good."""
    stop: Callable[[], None]
    """Stops it if it was started here."""
    started: bool = False
    """Whether it was started here."""
    comes_back: Callable[[], bool] = lambda: False
    """Whether it is gone, and is being started again."""
    steps: OpenSteps | None = None
    """Opens what can be read of its engines' steps, if anything can be."""


async def open_server(
    deployment: Deployment,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None] = lambda loading: None,
) -> Server:
    """The deployment's server; `say` gets a line per stage, in this loop's thread.

    So does `on_loading`, again and again, what the engines of a starting server do.

    Raises ServerError or BuildError. A start that is cancelled leaves nothing behind.
    """
    loop = asyncio.get_running_loop()
    given_up = threading.Event()

    def say_there(line: str) -> None:
        loop.call_soon_threadsafe(say, line)

    def tell_there(loading: Loading) -> None:
        loop.call_soon_threadsafe(on_loading, loading)

    def wanted() -> None:
        if given_up.is_set():
            raise Interrupted("The start of the server was given up.")

    in_thread = asyncio.to_thread(_open, deployment, say_there, tell_there, wanted)
    opening = asyncio.ensure_future(in_thread)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        given_up.set()
        await asyncio.wait({opening})
        with suppress(Exception):
            opening.result().stop()  # it was ready just then
        raise


def _open(
    deployment: Deployment,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
    check: Callable[[], None],
) -> Server:
    found = wait_for_server(deployment, say=say, on_loading=on_loading, check=check)
    if found:
        say(f"Using {found}")
        # of one that is not ours we see no process: the requests tell, and outlast its restart
        health = observe(found).check_from_outside if found.server else lambda: None
        back = partial(comes_back, deployment.name)
        steps = steps_of(deployment, found.addresses, ours=found.server is not None)
        return Server(found.addresses.grpc, health, lambda: None, comes_back=back, steps=steps)
    return _start(deployment, say, on_loading, check)


def _start(
    deployment: Deployment,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
    check: Callable[[], None],
) -> Server:
    over = threading.Event()

    def say_until_over(line: str) -> None:
        if not over.is_set():
            say(line)

    def tell_at_first(loading: Loading) -> None:
        if not own.ready.is_set():  # later a run has the screen
            on_loading(loading)

    own = BackgroundServer(deployment, over, say_until_over, tell_at_first, lasting=False)

    def stop() -> None:
        over.set()
        own.join()

    own.start()
    try:
        while not own.ready.wait(_LOOK_S):
            check()
            own.check()
        found = find_server(deployment)
        if found is None:  # it died just then: this is no time to wait for another
            raise ServerError("The Triton server died as soon as it was ready.")
    except BaseException:
        stop()
        raise
    steps = steps_of(deployment, found.addresses, ours=True)
    address = found.addresses.grpc
    return Server(address, own.check, stop, True, own.comes_back, steps)


async def while_healthy(running: Coroutine[Any, Any, T], check: Callable[[], None]) -> T:
    """Run to the end while `check`, called once a second, raises nothing.

    What it raises ends the run, and is raised in the place of an endpoint's error.
    """
    run = asyncio.ensure_future(running)
    health = asyncio.ensure_future(watch(check, HEALTH_CHECK_S))
    try:
        await asyncio.wait({run, health}, return_when=asyncio.FIRST_COMPLETED)
        if not run.done():
            health.result()
        return run.result()
    except EndpointError:
        check()  # says which process died, if one did; else the request's own error stands
        raise
    finally:
        for task in (run, health):
            task.cancel()
        await asyncio.wait({run, health})
