"""Keeping servers running: one that died is started again, at the same addresses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from tts.base.errors import ServerError, TtsError

from ..command.ports import Addresses
from .launch import Stopped
from .locks import comes_back, is_down, supervising, supervisor_of
from .lookup import use_server
from .service import Service
from .start import STALL_S, TELL_S, RunningServer, Watchdog, start_server
from .state import ProcessIdentity, ServerState, TransientStartError
from .triton_log import Loading

CHECK_INTERVAL_S = 1.0
MAX_RESTARTS = 5
"""A server that fails more often within WINDOW_S has a cause that restarts do not remove."""
WINDOW_S = 600.0
_SAY_S = 30.0
"""Seconds between progress messages while another process starts the server."""
FIRST_WAIT_S = 1.0
"""Before a restart; doubled for each further failure in the window."""


def supervise(
    service: Service,
    *,
    say: Callable[[str], None],
    stop: threading.Event,
    on_loading: Callable[[Loading], None] = lambda loading: None,
    on_ready: Callable[[], None] = lambda: None,
    lasting: bool = True,
    shared: bool = False,
) -> None:
    """Keep a server running until `stop` is set; `say` and `on_loading` are those of a start.

    `on_ready` is called when it serves for the first time. Others wait for a server that is down.
    Stopping a `lasting` server also ends this process. A `shared` one is left running if others
    still use it at the end.

    Raises the last ServerError when it does not start in the first place or fails too often;
    Supervised if another process does all that.
    """
    addresses: Addresses | None = None
    failures: list[float] = []
    with supervising(service, lasting=lasting), suppress(_Stop):
        while True:
            try:
                with start_server(
                    service,
                    say=say,
                    on_loading=on_loading,
                    check=partial(_sleep, stop, 0),
                    addresses=addresses,
                    supervised=True,
                    shared=shared,
                ) as server:
                    if addresses is None:
                        on_ready()
                    addresses = server.addresses
                    _until_stopped(server, stop)
                    return
            except ServerError as error:
                failures.append(time.monotonic())
                wait = wait_before_restart(failures)
                stopped = isinstance(error, Stopped) and not lasting
                if addresses is None or wait is None or stopped:
                    raise
                say(f"{error.message} It is started again in {wait:.0f} s.")
                _sleep(stop, wait)


class _Stop(Exception):
    """The end of a wait: nobody wants the server any more."""


def _until_stopped(server: RunningServer, stop: threading.Event) -> None:
    with suppress(_Stop):
        while True:
            server.check()
            _sleep(stop, CHECK_INTERVAL_S)


def _sleep(stop: threading.Event, seconds: float) -> None:
    if stop.wait(seconds):
        raise _Stop


def wait_for_server(
    service: Service,
    *,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
    check: Callable[[], None],
) -> tuple[ServerState, Callable[[], None]] | None:
    """Wait until no process is starting a server; then it is `use_server`.

    None if no server runs: none is being started, or the start failed, or its process has died.
    `check` may raise to end the wait. Raises ServerError once the start that is waited for has done
    nothing for as long as one of our own may.
    """
    began = reported_at = time.monotonic()
    starter: ProcessIdentity | None = None
    which = f"the {service.title} of {service.deployment.name}"
    while comes_back(service):
        check()
        now = time.monotonic()
        if (holder := supervisor_of(service)) and holder != starter:
            starter, watchdog = holder, Watchdog(service, holder)
            say(
                f"Waiting for {which}, which another process (PID {starter.pid}) is starting; "
                f"given up once that does nothing for {STALL_S:.0f} s"
            )
        loading = service.loading(now - began)
        if now - reported_at > _SAY_S:
            reported_at = now
            say(f"Still waiting after {now - began:.0f} s: {loading}")
        on_loading(loading)
        if starter:
            try:
                watchdog.check()
            except TransientStartError as error:
                raise ServerError(
                    f"Waited for {now - began:.0f} s while another process (PID {starter.pid}) was "
                    f"starting {which}. {error.message}",
                    hint=f"End that process. {error.hint}",
                ) from error
        time.sleep(TELL_S)
    return use_server(service, check)


def wait_before_restart(failures: Sequence[float]) -> float | None:
    """Seconds to wait after the last of some failures, or None if there were too many.

    `failures` are the times of all failures so far, in order, in seconds.
    """
    recent = sum(failures[-1] - failure < WINDOW_S for failure in failures)
    return None if recent > MAX_RESTARTS else FIRST_WAIT_S * 2.0 ** (recent - 1)


class BackgroundServer(threading.Thread):
    """Supervises a server (see `supervise`) until `stop` is set, or it fails for good."""

    def __init__(
        self,
        service: Service,
        stop: threading.Event,
        say: Callable[[str], None],
        on_loading: Callable[[Loading], None] = lambda loading: None,
        *,
        lasting: bool = True,
        shared: bool = True,
    ) -> None:
        """`say` and `on_loading` are called in the thread; the rest: see `supervise`."""
        # a daemon: a program that never ends it can still end, and its server with it
        super().__init__(name=service.title, daemon=True)
        self.ready = threading.Event()
        """Set when it serves for the first time."""
        self.error: TtsError | None = None
        """Why it has failed for good."""
        self._service = service
        self._supervise = partial(
            supervise,
            service,
            say=say,
            stop=stop,
            on_loading=on_loading,
            on_ready=self.ready.set,
            lasting=lasting,
            shared=shared,
        )

    def comes_back(self) -> bool:
        """Whether its server is down, and is started again."""
        return self.is_alive() and is_down(self._service)

    def check(self) -> None:
        """Raise the error with which it has failed for good."""
        if not self.is_alive():
            raise self.error or ServerError(f"The {self._service.title} was stopped.")

    def run(self) -> None:
        """See supervise."""
        try:
            self._supervise()
        except TtsError as error:
            self.error = error


def serve(
    services: Sequence[Service],
    *,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
) -> None:
    """Keep servers running until Ctrl-C; they start one after the other, and end in reverse.

    Raises a TtsError when one of them does not start in the first place or fails too often;
    Supervised if another process does all that.
    """
    turn = threading.RLock()  # a server may be started again while another one is

    def in_turn(line: str) -> None:
        with turn:
            say(line)

    def loading_in_turn(loading: Loading) -> None:
        with turn:
            on_loading(loading)

    servers: list[BackgroundServer] = []
    with ExitStack() as stack:
        for service in services:
            stop = threading.Event()
            server = BackgroundServer(service, stop, in_turn, loading_in_turn, shared=False)
            stack.callback(server.join)
            stack.callback(stop.set)
            server.start()
            servers.append(server)
            while not server.ready.wait(CHECK_INTERVAL_S):
                for each in servers:
                    each.check()
        in_turn("Press Ctrl-C to stop.")
        with suppress(KeyboardInterrupt):
            while True:
                for server in servers:
                    server.check()
                time.sleep(CHECK_INTERVAL_S)
        in_turn("Stopping ...")
