"""A server of a session or gateway that names none: the running one, or its own.

A dead server of its own is restarted, as by `tts serve`. Several programs may use a server at a
time: it ends with the last of them, whichever started it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, Self

from tts.base.errors import EndpointError, Interrupted, ServerError
from tts.build.spec import Deployment
from tts.engines.loading import OPEN, Stage
from tts.serving.command.ports import Addresses
from tts.serving.server.locks import Supervised, comes_back
from tts.serving.server.lookup import LocalHealth, find_server, watch
from tts.serving.server.service import Service
from tts.serving.server.supervise import BackgroundServer, wait_for_server
from tts.serving.server.triton_log import WAITING, Loading

HEALTH_CHECK_S = 1.0
_LOOK_S = 0.05

P = ParamSpec("P")


@dataclass(frozen=True)
class Server:
    """The addresses of a deployment's server, and a check that it still runs."""

    addresses: Addresses
    check: Callable[[], None]
    """Raises ServerError naming what died for good."""
    stop: Callable[[], None]
    """Ends its use; it is stopped if this was the last one, unless it serves all (`tts serve`)."""
    started: bool = False
    """Whether it was started here."""
    comes_back: Callable[[], bool] = lambda: False
    """Whether it is gone, and is being started again."""
    ours: bool = True
    """Whether a process of this user has started it."""

    @property
    def address(self) -> str:
        """Where Triton answers gRPC, as a client connects to it."""
        return self.addresses.grpc


def local_name(deployment: Deployment) -> str:
    """What stands for the address of a deployment's server on this machine: `demo@local`."""
    return f"{deployment.name}@local"


@asynccontextmanager
async def opened_servers(
    services: Sequence[Service], say: Callable[[str], None], on_loading: Callable[[Loading], None]
) -> AsyncIterator[Sequence[Server]]:
    """Servers opened one after the other while the block lasts, with the progress of all."""
    stages = {role: Stage(role, WAITING) for service in services for role in service.roles}

    def tell(loading: Loading) -> None:
        stages.update(loading.engines)
        on_loading(Loading(loading.seconds, dict(stages)))

    async with AsyncExitStack() as stack:
        servers = []
        for service in services:
            server = await open_server(service, say, tell)
            stack.push_async_callback(asyncio.to_thread, server.stop)
            stages.update({role: Stage(role, OPEN) for role in service.roles})
            servers.append(server)
        yield servers


async def open_server(
    service: Service,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None] = lambda loading: None,
    *,
    lasting: bool = False,
) -> Server:
    """The server of a service; `say` gets a line per stage, in this loop's thread.

    So does `on_loading`, repeatedly, with the progress of a starting server's engines, whichever
    process starts it. Stopping a server that was started as a `lasting` one also ends this process.

    Raises ServerError or BuildError. A start that is cancelled leaves nothing behind.
    """
    given_up = threading.Event()

    def check_wish() -> None:
        if given_up.is_set():
            raise Interrupted("The start of the server was given up.")

    callbacks = in_loop(say), in_loop(on_loading)
    in_thread = asyncio.to_thread(_open, service, *callbacks, check_wish, lasting=lasting)
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
    service: Service,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
    check: Callable[[], None],
    *,
    lasting: bool = False,
) -> Server:
    while True:
        match = wait_for_server(service, say=say, on_loading=on_loading, check=check)
        if match:
            break
        try:
            return _start(service, say, on_loading, check, lasting=lasting)
        except Supervised:  # another process was faster: its server is waited for
            check()
            time.sleep(_LOOK_S)
    server, leave = match
    say(f"Using {server}")
    if not server.server:  # of one that is not ours we see no process: the requests tell
        return Server(server.addresses, lambda: None, leave, ours=False)
    try:
        health = LocalHealth(service)
    except BaseException:
        leave()
        raise
    back = partial(comes_back, service)
    return Server(server.addresses, health.check_from_outside, leave, False, back)


def _start(
    service: Service,
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

    own = BackgroundServer(service, over, say_until_over, tell_at_first, lasting=lasting)

    def stop() -> None:
        over.set()
        own.join()

    own.start()
    try:
        while not own.ready.wait(_LOOK_S):
            check()
            own.check()
        server = find_server(service)
        if server is None:  # it died just then: this is no time to wait for another
            raise ServerError(f"The {service.title} died as soon as it was ready.")
    except BaseException:
        stop()
        raise
    return Server(server.addresses, own.check, stop, True, own.comes_back)


class Work:
    """A block of a task that ends when a server dies, or when somebody ends it from outside.

    It then raises the error that says why; a server that has died also explains the error of an
    endpoint. An async context manager.
    """

    def __init__(self, check: Callable[[], None] | None = None) -> None:
        """`check` is called once a second, in a thread; it raises for a server that has died."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the block is left."""
        self._check = check
        self._error: BaseException | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None  # this is a coroutine
        self._task, self._cancelling = task, task.cancelling()
        self._watch = self._check and asyncio.ensure_future(watch(self._check, HEALTH_CHECK_S))
        if self._watch:
            self._watch.add_done_callback(self._end_with)
        return self

    def end(self, error: BaseException) -> None:
        """Cancel what the block waits for; it raises the error."""
        if self._error is None and not self.over.done():
            self._error = error
            self._task.cancel()

    def _end_with(self, watch: asyncio.Future[None]) -> None:
        if not watch.cancelled() and (error := watch.exception()):
            self.end(error)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.over.set_result(None)
        if self._watch:
            self._watch.cancel()
            await asyncio.wait({self._watch})
        if self._error and self._task.uncancel() <= self._cancelling:
            raise self._error from None
        if self._check and isinstance(error, EndpointError):
            self._check()  # names the process that died, if one did


def in_loop(function: Callable[P, object]) -> Callable[P, None]:
    """Wrap `function`: called from any thread, it runs in that of the event loop which runs now."""
    loop = asyncio.get_running_loop()

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        loop.call_soon_threadsafe(partial(function, *args, **kwargs))

    return call
