"""Starting a server of a deployment: launched, waited for unless it does nothing any more; and the
handle of a started one.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil

from tts.base.errors import ServerError
from tts.base.owner import Owner

from ..command.guard import close_shared_memory
from ..command.ports import Addresses, listens
from ..command.server_command import ServerCommand
from .launch import Launched, PortTaken, Stopped, launch
from .locks import close_lock, give_back, supervising, supervisor_of, take_share
from .lookup import find_server, observe
from .service import Service
from .state import (
    ProcessIdentity,
    ServerState,
    TransientStartError,
    clean_up,
    identify,
    now,
    peek_state,
    read_state,
    write_state,
)
from .triton_log import Loading

STALL_S = 600.0
"""A server that has done nothing for so long while it loads is given up."""
OPEN_STALL_S = 30.0
"""A server that has opened its engines is given up after so long: the rest takes a moment."""
_BUSY = 0.1  # of one core: less is what a server spends on waiting
_CHECK_S = 1.0


class Watchdog:
    """Ends the wait for a server that does nothing any more, however long it may load."""

    def __init__(
        self, service: Service, process: ProcessIdentity, stall_s: float = STALL_S
    ) -> None:
        """`process` is the server's, or one above it."""
        self._service = service
        self._process = process
        self._stall_s = stall_s
        self._began = self._checked = self._active = time.monotonic()
        self._log_bytes, self._cpu_s = self._seen()

    def check(self) -> None:
        """Raise TransientStartError if for `stall_s` the log did not grow and no process computed.

        Where the engines are open it is OPEN_STALL_S. All by the monotonic clock.
        """
        now = time.monotonic()
        passed = now - self._checked
        if passed < min(_CHECK_S, self._stall_s / 4):
            return
        self._checked = now
        log_bytes, cpu_s = self._seen()
        if log_bytes > self._log_bytes or cpu_s - self._cpu_s > _BUSY * passed:
            self._active = now
        self._log_bytes, self._cpu_s = log_bytes, cpu_s
        loading = self._service.loading(now - self._began)
        limit = min(self._stall_s, OPEN_STALL_S) if loading.is_open else self._stall_s
        if now - self._active > limit:
            raise TransientStartError(
                f"The {self._service.title} is not ready, and has done nothing for {limit:.0f} s "
                f"({loading}): its log did not grow, its processes did not compute.",
                hint=f"Its log: {self._service.log}",
            )

    def _seen(self) -> tuple[int, float]:
        """Bytes of the log, and CPU seconds of the server's processes on this machine."""
        log_bytes, cpu_s = 0, 0.0
        with suppress(OSError):
            log_bytes = self._service.log.stat().st_size
        if server := self._process.process():
            with suppress(psutil.Error):
                for process in [server, *server.children(recursive=True)]:
                    with suppress(psutil.Error):
                        times = process.cpu_times()
                        cpu_s += times.user + times.system
        return log_bytes, cpu_s


TELL_S = 0.5
"""How often a start says how far it is."""
_ANSWER_S = 600.0
"""Patience with the first request of a ready server; a slow engine may compute long."""
_TRIES_AGAIN: dict[type[BaseException], int] = {PortTaken: 2, TransientStartError: 1}
_POLL_S = 0.05


class RunningServer:
    """A ready server that this process started. Only a shared one may outlive this process.

    A context manager: leaving it stops the server, unless it is shared and others use it.
    """

    def __init__(self, state: ServerState, launched: Launched, share: int | None = None) -> None:
        """`share` is this process's own use of a shared server."""
        self.state = state
        self.service = launched.service
        self.health = observe(launched.service, state)
        self._launched = launched
        self._share = share
        self._is_left = False
        self._owner = Owner("This server")
        atexit.register(self.leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, ServerError):  # of no use to anybody
            self.stop()
        self.leave()

    @property
    def addresses(self) -> Addresses:
        """The addresses at which it listens."""
        return self.state.addresses

    def check(self) -> None:
        """Raise ServerError naming what died, if anything did. Takes less than a millisecond.

        The error is Stopped if another process has stopped it.
        """
        try:
            self.health.check()
        except ServerError as error:
            state = peek_state(self.service.state_file)
            if state and state.stopping:
                raise Stopped(
                    f"The {self.service.title} was stopped by another process."
                ) from error
            self._require_running()  # if it is the server itself, the guard knows how it died
            raise
        self._require_running()

    def _require_running(self) -> None:
        try:
            self._launched.require_running()
        except TransientStartError as error:
            raise error.plain() from None

    def leave(self) -> None:
        """Stop the server; one that others use is left to its guard, which stops it after them."""
        share, self._share = self._share, None
        if share is None or not self._owner.is_here:
            self.stop()
            return
        with give_back(share) as last:
            state = peek_state(self.service.state_file)
            if last or (state and state.stopping):
                self.stop()
            else:
                self._launched.leave()
                self._is_left = True
                atexit.unregister(self.leave)

    def stop(self) -> None:
        """Stop the server and wait until nothing of it is left; harmless when repeated.

        The guard carries it out, so it is completed even if this call is interrupted. A fork of the
        process that started it, which may come here at its end, leaves the server alone.
        """
        if self._is_left or not self._owner.is_here:
            return
        try:
            self._launched.stop()
        finally:
            if self._share is not None:
                close_lock(self._share)
                self._share = None
            clean_up(self.state)  # for the case that the guard itself was killed
            # drops the file, unless a newer server has written it
            read_state(self.service.state_file)
            atexit.unregister(self.leave)


def start_server(
    service: Service,
    *,
    say: Callable[[str], None] = lambda line: None,
    check: Callable[[], None] = lambda: None,
    on_loading: Callable[[Loading], None] = lambda loading: None,
    stall_s: float = STALL_S,
    addresses: Addresses | None = None,
    supervised: bool = False,
    shared: bool = False,
) -> RunningServer:
    """Prepare and launch a server, and return when its models have answered.

    `say` gets one line per stage, `on_loading` twice a second what the engines are doing. Loading
    may take any time as long as it makes progress; a server that does nothing for `stall_s` seconds
    is given up. A server that dies, loses a model's process or does nothing is started once more,
    with a message. `check` is called again and again meanwhile; what it raises gives the start up.
    `addresses` are those of the server that this one replaces. `supervised`: the caller holds the
    lock of the server's supervisor. A `shared` server ends with the last of its users, of which
    this process is the first; any other one ends with this process.

    Raises ServerError (port in use, a model that does not load, a server that does nothing, already
    running; Supervised if another process starts it now), and what Service.prepare raises.
    """
    lock = nullcontext() if supervised else supervising(service, lasting=False)
    with lock, ExitStack() as undone:
        if running := find_server(service):
            name = service.deployment.name
            raise ServerError(
                f"Deployment {name} is already served by {running}.",
                hint=f"Use it, or stop it: tts serve {service.deployment.argument} --stop",
            )
        variables, command_at = service.prepare(say)
        share = take_share(service.folder, check) if shared else None
        if share is not None:
            undone.callback(close_lock, share)
        attempt = _Attempt(service, variables, check, on_loading, stall_s, share)
        server = _first_success(lambda: attempt.run(command_at(addresses)), say)
        say(f"Ready: {service.where(server.addresses)}")
        undone.pop_all()
        return server


def _first_success(
    attempt: Callable[[], RunningServer], say: Callable[[str], None]
) -> RunningServer:
    """The server of the first attempt that succeeds; raises the error of the last one."""
    tries = dict(_TRIES_AGAIN)
    while True:
        try:
            return attempt()
        except TransientStartError as error:
            if not tries[TransientStartError]:
                raise error.plain() from error.__cause__
            tries[TransientStartError] -= 1
            say(f"{error.message} It is started once more.")
        except PortTaken:
            if not tries[PortTaken]:
                raise
            tries[PortTaken] -= 1


@dataclass(frozen=True)
class _Attempt:
    """An attempt to start a server, in its phases."""

    service: Service
    variables: dict[str, str]
    check: Callable[[], None]
    on_loading: Callable[[Loading], None]
    stall_s: float
    share: int | None

    def run(self, command: ServerCommand) -> RunningServer:
        """Launch the server, and wait until it has answered; nothing is left of one that fails."""
        launched = launch(self.service, command, self.variables, shared=self.share is not None)
        try:
            self._wait(launched)
            if command.private:  # where the guard could not have it made private
                close_shared_memory(command.mark)
            self._confirm(launched)
            state = self._state_of(launched)
            write_state(self.service.state_file, state)
            return RunningServer(state, launched, self.share)
        except BaseException:
            launched.stop()
            raise

    def _wait(self, launched: Launched) -> None:
        """Wait until it says that it is ready, and listens everywhere."""
        watchdog = Watchdog(self.service, launched.server, self.stall_s)
        began, reported_s = time.monotonic(), -TELL_S
        while not (self.service.answers(launched.command.addresses) and _has_its_ports(launched)):
            self.check()
            launched.require_running()
            watchdog.check()
            seconds = time.monotonic() - began
            if seconds >= reported_s + TELL_S:
                reported_s = seconds
                self.on_loading(self.service.loading(seconds))
            time.sleep(_POLL_S)

    def _confirm(self, launched: Launched) -> None:
        """Have its models answer a request."""
        try:
            self.service.confirm(launched.command.addresses, _ANSWER_S)
        except ServerError:
            launched.require_running()  # if it died meanwhile, that message says more
            raise

    def _state_of(self, launched: Launched) -> ServerState:
        command = launched.command
        return ServerState(
            deployment=self.service.deployment.name,
            digest=self.service.digest,
            addresses=command.addresses,
            server=launched.server,
            guard=identify(launched.guard.pid),
            mark=command.mark,
            container=command.container,
            supervisor=supervisor_of(self.service, lasting=True),
            shared=self.share is not None,
            started=now(),
        )


def _has_its_ports(launched: Launched) -> bool:
    """Whether it listens wherever it is to: another server may have won a race for a port.

    Triton answers by gRPC before it opens the others, and ends if one of them was taken. The ports
    of a container belong to docker, which opens them first.
    """
    command = launched.command
    return bool(command.container) or listens(launched.server.pid, command.addresses)
