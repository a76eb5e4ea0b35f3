"""The server of a session or gateway that names none: the running one, or its own.

A dead server of its own is restarted, as by `tts serve`. Several programs may use a server at a
time: it ends with the last of them, whichever started it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tts.build.errors import EndpointError, Interrupted, ServerError
from tts.build.spec import Deployment
from tts.serving.server.loading import Loading
from tts.serving.server.lookup import LocalHealth, find_server, watch
from tts.serving.server.state import Supervised, comes_back
from tts.serving.server.supervise import BackgroundServer, wait_for_server

from .engine_steps import OpenSteps, steps_of
from .event_loop import in_loop

HEALTH_CHECK_S = 1.0
_LOOK_S = 0.05

T = TypeVar("T")


@dataclass(frozen=True)
class Server:
    """The address of the deployment's server, and a check that it still runs."""

    address: str
    """Where it answers gRPC, as a client connects to it."""
    check: Callable[[], None]
    """Raises ServerError naming what died for good."""
    stop: Callable[[], None]
    """Ends its use; it is stopped if this was the last one, unless it serves all (`tts serve`)."""
    started: bool = False
    """Whether it was started here."""
    comes_back: Callable[[], bool] = lambda: False
    """Whether it is gone, and is being started again."""
    steps: OpenSteps | None = None
    """Opens what can be read of its engines' steps, if anything can be."""
    name: str = ""
    """`demo@local`, by which it is seen to die and to be started again, or its address if no
    process of ours has started it."""


def local_name(deployment: Deployment) -> str:
    """What stands for the address of a deployment's server on this machine: `demo@local`."""
    return f"{deployment.name}@local"


async def open_server(
    deployment: Deployment,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None] = lambda loading: None,
    *,
    lasting: bool = False,
) -> Server:
    """The deployment's server; `say` gets a line per stage, in this loop's thread.

    So does `on_loading`, repeatedly, with the progress of a starting server's engines, whichever
    process starts it. Stopping a server that was started as a `lasting` one also ends this process.

    Raises ServerError or BuildError. A start that is cancelled leaves nothing behind.
    """
    given_up = threading.Event()

    def wanted() -> None:
        if given_up.is_set():
            raise Interrupted("The start of the server was given up.")

    told = in_loop(say), in_loop(on_loading)
    in_thread = asyncio.to_thread(_open, deployment, *told, wanted, lasting=lasting)
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
    *,
    lasting: bool = False,
) -> Server:
    while True:
        used = wait_for_server(deployment, say=say, on_loading=on_loading, check=check)
        if used:
            break
        try:
            return _start(deployment, say, on_loading, check, lasting=lasting)
        except Supervised:  # another process was faster: its server is waited for
            check()
            time.sleep(_LOOK_S)
    found, leave = used
    say(f"Using {found}")
    address = found.addresses.grpc
    steps = steps_of(deployment, found.addresses, ours=found.server is not None)
    if not found.server:  # of one that is not ours we see no process: the requests tell
        return Server(address, lambda: None, leave, steps=steps, name=address)
    try:
        health = LocalHealth(deployment)
    except BaseException:
        leave()
        raise
    back = partial(comes_back, deployment.name)
    name = local_name(deployment)
    return Server(address, health.check_from_outside, leave, False, back, steps, name)


def _start(
    deployment: Deployment,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
    check: Callable[[], None],
    *,
    lasting: bool,
) -> Server:
    over = threading.Event()

    def say_until_over(line: str) -> None:
        if not over.is_set():
            say(line)

    def tell_at_first(loading: Loading) -> None:
        if not own.ready.is_set():  # later a run has the screen
            on_loading(loading)

    own = BackgroundServer(deployment, over, say_until_over, tell_at_first, lasting=lasting)

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
    address, name = found.addresses.grpc, local_name(deployment)
    return Server(address, own.check, stop, True, own.comes_back, steps, name)


async def while_healthy(running: Coroutine[Any, Any, T], check: Callable[[], None]) -> T:
    """Run to the end as long as `check`, called once a second, does not raise.

    Its exception ends the run, and replaces an endpoint's error.
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
