"""Finding, watching and stopping the servers of a deployment, whichever process started them.

The death of a server, or of one of its processes, is noticed within a second or two. Triton itself
does not notice: with a killed stub it stays "ready" while every request fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import psutil

from tts.base import paths
from tts.base.errors import ServerError

from ..command import guard
from ..command.guard import remove_socket
from ..command.ports import Addresses
from .locks import close_lock, give_back, supervisor_of, take_share
from .service import Service
from .state import (
    ProcessIdentity,
    ServerState,
    clean_up,
    death,
    forget,
    peek_state,
    read_state,
    signal_of,
    write_state,
)

_POLL_S = 0.05


def find_server(service: Service) -> ServerState | None:
    """The live server of a service: one of ours, or one of somebody else that stands for it.

    Raises ServerError if what runs there serves something else, or an older state of the
    deployment.
    """
    state = read_state(service.state_file)
    if state is None:
        return service.external()
    if state.digest == service.digest:
        return state
    name = service.deployment.name
    raise ServerError(
        f"Deployment {name} has changed since {state} was started.",
        hint=f"Stop it first: tts serve {service.deployment.argument} --stop",
    )


def served_deployments() -> list[str]:
    """Names of the deployments of which a server of ours runs, in alphabetical order."""
    folder = str(paths.server_dir("*").relative_to(paths.home()))
    files = [*paths.home().glob(f"{folder}/{guard.STATE}")]
    files += paths.home().glob(f"{folder}/*/{guard.STATE}")
    states = map(read_state, files)
    return sorted({state.deployment for state in states if state})


def stop_server(service: Service) -> bool:
    """Stop a server that any process of this user started, or is starting again.

    Returns False if there is none. Raises ServerError if it belongs to someone else.
    """
    # the supervisor first: it would start the server again, and may be about to
    supervisor = supervisor_of(service, lasting=True)
    state = read_state(service.state_file)
    running = [role for role in (supervisor, state and state.guard) if role and role.process()]
    if not (running or state):
        return False
    _stop(service, state, running)
    return True


def use_server(
    service: Service, check: Callable[[], None] = lambda: None
) -> tuple[ServerState, Callable[[], None]] | None:
    """The live server of a service, and what ends its use by this process; None if none runs.

    A shared server goes on as long as it is used, and is stopped with the end of its last use.
    `check` may raise to end the wait for one that is being stopped. Raises as `find_server`.
    """
    state = find_server(service)
    if state is None:
        return None
    if not state.shared:
        return state, lambda: None
    share = take_share(service.folder, check)
    try:
        current = find_server(service)
    except BaseException:
        close_lock(share)
        raise
    if current is None:  # its last user has stopped it meanwhile
        close_lock(share)
        return None
    return current, partial(_end_use, service, share)


def _end_use(service: Service, share: int) -> None:
    with give_back(share) as last:
        state = read_state(service.state_file) if last else None
        if state and state.shared and state.guard:
            _stop(service, state, [state.guard])


def _stop(service: Service, state: ServerState | None, running: list[ProcessIdentity]) -> None:
    """Ask the first of these processes to stop, and wait for the end of all of them."""
    file = service.state_file
    if state:  # its models end before it does, and must not be taken for dead
        write_state(file, replace(state, stopping=True))
    try:
        for process in filter(None, [role.process() for role in running[:1]]):
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        deadline = time.monotonic() + guard.LONGEST_STOP_S
        # not psutil's wait, which also waits for a zombie that its parent has not reaped yet
        while any(role.process() for role in running) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    except psutil.AccessDenied as error:
        raise ServerError(
            f"PID {error.pid}, {state or 'its supervisor'}, is another user's."
        ) from error
    if state:
        clean_up(state)
        remove_socket(state.addresses.socket)
        forget(file, state)


@dataclass(frozen=True)
class Health:
    """The processes that must stay alive for a server to answer."""

    service: Service
    state: ServerState
    parts: Mapping[ProcessIdentity, str]
    """Further processes that ran when the server became ready, with their names."""

    def check(self) -> None:
        """Raise ServerError naming what died. Takes less than a millisecond.

        A server that we did not start is asked for a real inference instead.
        """
        server = self.state.server
        if server is None:
            self.service.confirm(self.state.addresses)
            return
        if server.process() is None:
            raise ServerError(
                f"{death(f'The {self.service.title}', signal_of(server.pid))}.",
                hint=f"Its log: {self.service.log}",
            )
        for part, title in self.parts.items():
            if part.process() is None:
                what = f"The {title} (PID {part.pid})"
                raise ServerError(
                    f"{death(what, signal_of(part.pid))}; {self.state} cannot answer any more.",
                    hint="Start the server again.",
                )

    def check_from_outside(self) -> None:
        """`check` for a client of the server, who may leave a death to the supervisor.

        While that process lives the server is started again at the same address, and requests are
        sent again until then.
        """
        try:
            self.check()
        except ServerError as error:
            state = self.state
            if supervisor_of(self.service) or (state.supervisor and state.supervisor.process()):
                return
            if state.supervisor:
                raise
            whose = (
                "The process that had started it is gone, so nobody starts it again."
                if state.shared
                else "It belonged to another process, which stops it when it ends."
            )
            raise ServerError(
                error.message,
                hint=f"{whose} One that stays for all: tts serve {state.deployment}\n{error.hint}",
            ) from error


class LocalHealth:
    """The health of a server of this machine, through all of its restarts."""

    def __init__(self, service: Service) -> None:
        """Raises ServerError if it has never been started."""
        self._service = service
        state = peek_state(service.state_file)
        if state is None:
            raise ServerError(
                f"No server of {service.deployment.name} is running.",
                hint=f"Start it: tts serve {service.deployment.argument}",
            )
        self.addresses: Addresses = state.addresses
        self._health = observe(service, state)

    def check(self) -> None:
        """See Health; a restarted server is a different one."""
        self._look().check()

    def check_from_outside(self) -> None:
        """See Health."""
        self._look().check_from_outside()

    def _look(self) -> Health:
        with suppress(OSError):  # no descriptor is free: as it was
            state = peek_state(self._service.state_file)
            if state and state.server != self._health.state.server:
                self._health = observe(self._service, state)
        return self._health


async def watch(check: Callable[[], None], interval_s: float) -> None:
    """Call a check for ever, in a thread because it may wait for a network; ends by its error."""
    while True:
        await asyncio.to_thread(check)
        await asyncio.sleep(interval_s)


def observe(service: Service, state: ServerState) -> Health:
    """Record the processes of a server that answers now, to be checked later."""
    process = state.server and state.server.process()
    return Health(service, state, service.parts(process) if process else {})
