"""Starting a server of a deployment, and the handle of a started one."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from types import TracebackType
from typing import Self

from tts.base.errors import ServerError
from tts.base.owner import Owner

from ..command.guard import close_shared_memory
from ..command.ports import Addresses, listens
from .launch import Launched, PortTaken, Stopped, launch
from .loading import Loading
from .locks import close_lock, give_back, take_share
from .lookup import find_server, observe
from .service import Service
from .state import Mishap, ServerState, clean_up, identify, now, peek_state, read_state, write_state
from .supervisor import supervising, supervisor_of
from .watchdog import STALL_S, Watchdog

TELL_S = 0.5
"""How often a start says how far it is."""
_ANSWER_S = 600.0
"""Patience with the first request of a ready server; a slow engine may compute long."""
_TRIES_AGAIN: dict[type[BaseException], int] = {PortTaken: 2, Mishap: 1}
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
        except Mishap as error:
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
            read_state(
                self.service.state_file
            )  # drops the file, unless a newer server has written it
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
    with (
        nullcontext() if supervised else supervising(service, lasting=False),
        ExitStack() as undone,
    ):
        if running := find_server(service):
            name = service.deployment.name
            raise ServerError(
                f"Deployment {name} is already served by {running}.",
                hint=f"Use it, or stop it: tts serve {name} --stop",
            )
        variables, command_at = service.prepare(say)
        share: int | None = None
        if shared:
            share = take_share(service.folder, check)
            undone.callback(close_lock, share)
        tries_again = dict(_TRIES_AGAIN)
        while True:
            command = command_at(addresses)
            try:
                launched = launch(service, command, variables, shared=shared)
                try:
                    server = _when_ready(
                        launched,
                        check=check,
                        on_loading=on_loading,
                        stall_s=stall_s,
                        share=share,
                    )
                except BaseException:
                    launched.stop()
                    raise
            except BaseException as error:
                if not tries_again.get(type(error)):
                    if isinstance(error, Mishap):
                        raise error.plain() from error.__cause__
                    raise
                tries_again[type(error)] -= 1
                if isinstance(error, Mishap):
                    say(f"{error.message} It is started once more.")
            else:
                say(f"Ready: {service.where(command.addresses)}")
                undone.pop_all()
                return server


def _has_its_ports(launched: Launched) -> bool:
    """Whether it listens wherever it is to: another server may have won a race for a port.

    Triton answers by gRPC before it opens the others, and ends if one of them was taken. The ports
    of a container belong to docker, which opens them first.
    """
    command = launched.command
    return bool(command.container) or listens(launched.server.pid, command.addresses)


def _when_ready(
    launched: Launched,
    *,
    check: Callable[[], None],
    on_loading: Callable[[Loading], None],
    stall_s: float,
    share: int | None,
) -> RunningServer:
    """Wait until the models have answered a request, then write the state file."""
    service, command = launched.service, launched.command
    watchdog = Watchdog(service, launched.server, stall_s)
    began, reported_at = time.monotonic(), -TELL_S
    while not (service.answers(command.addresses) and _has_its_ports(launched)):
        check()
        launched.require_running()
        watchdog.check()
        seconds = time.monotonic() - began
        if seconds >= reported_at + TELL_S:
            reported_at = seconds
            on_loading(service.loading(seconds))
        time.sleep(_POLL_S)
    if command.private:  # where the guard could not have it made private
        close_shared_memory(command.mark)
    try:
        service.confirm(command.addresses, _ANSWER_S)
    except ServerError:
        launched.require_running()  # if it died meanwhile, that message says more
        raise
    state = ServerState(
        deployment=service.deployment.name,
        digest=service.digest,
        addresses=command.addresses,
        server=launched.server,
        guard=identify(launched.guard.pid),
        mark=command.mark,
        container=command.container,
        supervisor=supervisor_of(service, lasting=True),
        shared=share is not None,
        started=now(),
    )
    write_state(service.state_file, state)
    return RunningServer(state, launched, share)
