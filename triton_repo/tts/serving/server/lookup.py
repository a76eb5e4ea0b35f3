"""Finding, watching and stopping the server of a deployment, whichever process started it.

Its death, or that of one of its processes, is noticed within a second or two. Triton itself does
not notice: with a killed stub it stays "ready" while every request fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.spec import Deployment

from ..command import guard
from ..command.guard import remove_socket
from ..command.ports import Addresses, address
from ..command.tritonserver import STUB
from ..repository.digest import deployment_digest
from . import probe
from .locks import close_lock, give_back, take_share
from .state import (
    LOG,
    STATE,
    ProcessIdentity,
    ServerState,
    clean_up,
    death,
    forget,
    identify,
    peek_state,
    read_state,
    signal_of,
    supervisor_of,
    write_state,
)

_POLL_S = 0.05


def state_file(deployment: Deployment) -> Path:
    """Where the state of a deployment's server is kept while it runs."""
    return paths.server_dir(deployment.name) / STATE


def find_server(deployment: Deployment) -> ServerState | None:
    """The live server of a deployment: one of ours, or one that answers at its given gRPC port.

    Raises ServerError if what runs there serves something else, or an older state of the
    deployment.
    """
    state = read_state(state_file(deployment))
    port = deployment.server.grpc_port
    if state is None and port != "auto":
        where = address(deployment.server.host, port)
        digest = probe.served_digest(where)
        if digest is None:
            return None
        state = _external(deployment, digest, port)
    if state is None or state.digest == deployment_digest(deployment):
        return state
    if state.server:
        raise ServerError(
            f"Deployment {deployment.name} has changed since {state} was started.",
            hint=f"Stop it first: tts serve {deployment.name} --stop",
        )
    raise ServerError(
        f"Another Triton server answers at {state.addresses.grpc} (server.grpc_port) and does not "
        f"serve deployment {deployment.name}.",
        hint="Stop it, or give the deployment another port.",
    )


def served_deployments() -> list[str]:
    """Names of the deployments of which a server of ours runs, in alphabetical order."""
    files = paths.server_dir("*").relative_to(paths.home())
    states = (read_state(file) for file in paths.home().glob(str(files / STATE)))
    return sorted(state.deployment for state in states if state)


def stop_server(deployment: Deployment) -> bool:
    """Stop the server of a deployment that any process of this user started, or is starting again.

    Returns False if there is none. Raises ServerError if it belongs to someone else.
    """
    file = state_file(deployment)
    # the supervisor first: it would start the server again, and may be about to
    supervisor = supervisor_of(deployment.name, lasting=True)
    state = read_state(file)
    running = [role for role in (supervisor, state and state.guard) if role and role.process()]
    if not (running or state):
        return False
    _stop(file, state, running)
    return True


def use_server(
    deployment: Deployment, check: Callable[[], None] = lambda: None
) -> tuple[ServerState, Callable[[], None]] | None:
    """The live server of a deployment, and what ends its use by this process; None if none runs.

    A shared server goes on as long as it is used, and is stopped with the end of its last use.
    `check` may raise to end the wait for one that is being stopped. Raises as `find_server`.
    """
    state = find_server(deployment)
    if state is None:
        return None
    if not state.shared:
        return state, lambda: None
    share = take_share(deployment.name, check)
    try:
        found = find_server(deployment)
    except BaseException:
        close_lock(share)
        raise
    if found is None:  # its last user has stopped it meanwhile
        close_lock(share)
        return None
    return found, partial(_end_use, deployment, share)


def _end_use(deployment: Deployment, share: int) -> None:
    file = state_file(deployment)
    with give_back(share) as last:
        state = read_state(file) if last else None
        if state and state.shared and state.guard:
            _stop(file, state, [state.guard])


def _stop(file: Path, state: ServerState | None, running: list[ProcessIdentity]) -> None:
    """Ask the first of these processes to stop, and wait for the end of all of them."""
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


def _external(deployment: Deployment, digest: str, port: int) -> ServerState:
    spec = deployment.server
    http = spec.http_port if isinstance(spec.http_port, int) else 0
    metrics = spec.metrics_port if isinstance(spec.metrics_port, int) else 0
    return ServerState(deployment.name, digest, Addresses(spec.host, port, http, metrics))


@dataclass(frozen=True)
class Health:
    """The processes that must stay alive for a server to answer."""

    state: ServerState
    stubs: dict[ProcessIdentity, str]
    """The Python stubs that ran when the server became ready, each with its model's name."""

    def check(self) -> None:
        """Raise ServerError naming what died. Takes less than a millisecond.

        A server that we did not start is asked for a real inference instead.
        """
        server = self.state.server
        if server is None:
            address = self.state.addresses.grpc
            probe.probe(address)
            return
        if server.process() is None:
            raise ServerError(
                f"{death('The Triton server', signal_of(server.pid))}.",
                hint=f"Its log: {paths.server_dir(self.state.deployment) / LOG}",
            )
        for stub, model in self.stubs.items():
            if stub.process() is None:
                what = f"The Python stub of model {model} (PID {stub.pid})"
                raise ServerError(
                    f"{death(what, signal_of(stub.pid))}; {self.state} cannot answer any more.",
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
            if supervisor_of(state.deployment) or (state.supervisor and state.supervisor.process()):
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
    """The health of a deployment's server on this machine, through all of its restarts."""

    def __init__(self, deployment: Deployment) -> None:
        """Raises ServerError if it has never been started."""
        self._deployment = deployment
        self._file = paths.server_dir(deployment.name) / STATE
        state = peek_state(self._file)
        if state is None:
            raise ServerError(
                f"No server of {deployment.name} is running.",
                hint=f"Start it: tts serve {deployment.named}",
            )
        self.address = state.addresses.grpc
        self._health = observe(state)

    def check(self) -> None:
        """See Health; a restarted server is a different one."""
        self._look().check()

    def check_from_outside(self) -> None:
        """See Health."""
        self._look().check_from_outside()

    def _look(self) -> Health:
        state = peek_state(self._file)
        if state and state.server != self._health.state.server:
            self._health = observe(state)
        return self._health


async def watch(check: Callable[[], None], interval_s: float) -> None:
    """Call a check for ever, in a thread because it may wait for a network; ends by its error."""
    while True:
        await asyncio.to_thread(check)
        await asyncio.sleep(interval_s)


def observe(state: ServerState) -> Health:
    """Record the processes of a server that answers now, to be checked later."""
    process = state.server and state.server.process()
    stubs: dict[ProcessIdentity, str] = {}
    if process:
        children = []
        with suppress(psutil.NoSuchProcess):  # it has just died
            children = process.children(recursive=True)  # under mpirun they are grandchildren
        for child in children:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                words = child.cmdline()
                # "<stub> <repository>/<model>/<version>/model.py ..."
                if words and Path(words[0]).name == STUB:
                    stubs[identify(child.pid)] = Path(words[1]).parents[1].name
    return Health(state, stubs)
