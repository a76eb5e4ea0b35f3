"""Starting the server of a deployment, and the handle of a started one."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tts.build import paths
from tts.build.errors import CheckpointError, ServerError
from tts.build.openvino.memory import require_memory, shortage
from tts.build.owner import Owner
from tts.build.private import private_folder
from tts.build.spec import Deployment

from ..command import environment
from ..command.container import Docker, image
from ..command.guard import close_shared_memory
from ..command.ports import Addresses, choose_addresses, is_loopback, listens, socket_path
from ..command.server_command import ServerCommand, server_command
from ..command.tritonserver import TritonServer, find_runtime
from ..repository.digest import deployment_digest
from ..repository.render import render_repository, require_engines, require_something
from . import probe, triton_log
from .launch import Launched, PortTaken, Stopped, after_the_last_guard, launch
from .loading import STALL_S, Loading, Watchdog, read_loading
from .locks import close_lock, give_back, take_share
from .lookup import find_server, observe, state_file
from .state import (
    LOG,
    Mishap,
    ServerState,
    clean_up,
    end_processes,
    identify,
    now,
    peek_state,
    read_state,
    supervising,
    supervisor_of,
    writable,
    write_state,
)

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

    def __init__(
        self, state: ServerState, launched: Launched, state_file: Path, share: int | None = None
    ) -> None:
        """`share` is this process's own use of a shared server."""
        self.state = state
        self.health = observe(state)
        self.log = launched.log
        self._launched = launched
        self._state_file = state_file
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
            state = peek_state(self._state_file)
            if state and state.stopping:
                raise Stopped("The Triton server was stopped by another process.") from error
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
            state = peek_state(self._state_file)
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
            read_state(self._state_file)  # drops the file, unless a newer server has written it
            atexit.unregister(self.leave)


def start_server(
    deployment: Deployment,
    *,
    say: Callable[[str], None] = lambda line: None,
    check: Callable[[], None] = lambda: None,
    on_loading: Callable[[Loading], None] = lambda loading: None,
    stall_s: float = STALL_S,
    addresses: Addresses | None = None,
    supervised: bool = False,
    shared: bool = False,
) -> RunningServer:
    """Render the repository, launch tritonserver and return when both models have answered.

    `say` gets one line per stage, `on_loading` twice a second what the engines are doing. Loading
    may take any time as long as it makes progress; a server that does nothing for `stall_s` seconds
    is given up. A server that dies, loses a model's process or does nothing is started once more,
    with a message. `check` is called again and again meanwhile; what it raises gives the start up.
    `addresses` are those of the server that this one replaces. `supervised`: the caller holds the
    lock of the server's supervisor. A `shared` server ends with the last of its users, of which
    this process is the first; any other one ends with this process. Engines of target
    openvino log their iterations beside the server's log.

    Raises ServerError (no tritonserver, port in use, a model that does not load, a server that
    does nothing, already running; Supervised if another process starts it now), BuildError (an
    engine is missing or old) or ConfigError (this machine's memory cannot hold the pair).
    """
    require_something(deployment)
    if deployment.target == "openvino":
        with suppress(CheckpointError):  # refused with the engines, by what is wrong with it
            if short := shortage(require_memory(deployment)):
                say(short)
    runtime = find_runtime(deployment)
    name = deployment.name
    grpc_socket = socket_path(name)
    with writable(deployment.name):
        folder = private_folder(paths.server_dir(name))
    with (
        nullcontext() if supervised else supervising(name, lasting=False),
        ExitStack() as undone,
    ):
        if running := find_server(deployment):
            raise ServerError(
                f"Deployment {deployment.name} is already served by {running}.",
                hint=f"Use it, or stop it: tts serve {deployment.name} --stop",
            )
        if deployment.target != "openvino":  # without them the others cannot even be rendered
            require_engines(deployment)
        with writable(deployment.name), after_the_last_guard(folder):
            render_repository(deployment, iteration_log=deployment.target == "openvino")
            variables = dict(os.environ)
            if isinstance(runtime, TritonServer):
                variables = environment.prepare(runtime, environment.folder(deployment))
        if not is_loopback(deployment.server.host):
            say(f"Listening on {deployment.server.host}: others can reach this server.")
        say(f"Starting {runtime.describe()}")
        share: int | None = None
        if shared:
            share = take_share(name, check)
            undone.callback(close_lock, share)
        tries_again = dict(_TRIES_AGAIN)
        while True:
            where = addresses or choose_addresses(deployment.server, grpc_socket)
            if where.socket:
                private_folder(private_folder(grpc_socket.parents[1]) / grpc_socket.parent.name)
            this = server_command(runtime, deployment, where)
            try:
                launched = launch(this, variables, folder / LOG, shared=shared)
                try:
                    server = _when_ready(
                        launched,
                        where,
                        deployment,
                        check=check,
                        on_loading=on_loading,
                        stall_s=stall_s,
                        share=share,
                    )
                except BaseException:
                    launched.stop()
                    raise
            except BaseException as error:
                end_processes(this.shm_prefix, this.container)  # if the guard itself was killed
                if not tries_again.get(type(error)):
                    if isinstance(error, Mishap):
                        raise error.plain() from error.__cause__
                    raise
                tries_again[type(error)] -= 1
                if isinstance(error, Mishap):
                    say(f"{error.message} It is started once more.")
            else:
                say(f"Ready: gRPC {where.grpc}, metrics http://{where.metrics}/metrics")
                undone.pop_all()
                return server


def planned_command(deployment: Deployment) -> ServerCommand:
    """The command with which a start would run the server now; on free ports of this machine.

    Where no server for NVIDIA's GPUs can run, it is the command for a machine where it can.
    """
    try:
        runtime = find_runtime(deployment)
    except ServerError:
        if deployment.target == "openvino":
            raise
        runtime = Docker(image(deployment))
    addresses = choose_addresses(deployment.server, socket_path(deployment.name))
    return server_command(runtime, deployment, addresses)


def _has_its_ports(launched: Launched, addresses: Addresses) -> bool:
    """Whether it listens wherever it is to; Triton answers by gRPC before it opens the others.

    It ends if one of them was taken. The ports of a container belong to docker, which opens them
    first.
    """
    return bool(launched.command.container) or listens(launched.server.pid, addresses)


def _when_ready(
    launched: Launched,
    addresses: Addresses,
    deployment: Deployment,
    *,
    check: Callable[[], None],
    on_loading: Callable[[Loading], None],
    stall_s: float,
    share: int | None,
) -> RunningServer:
    """Wait until both models have answered a request, then write the state file."""
    digest = deployment_digest(deployment)
    watchdog = Watchdog(launched.log, launched.server, stall_s, roles=deployment.engines())
    began, told = time.monotonic(), -TELL_S
    # the digest as well: if we lost the port in a race, another server may answer there
    while not (
        probe.is_ready(addresses.grpc)
        and probe.served_digest(addresses.grpc) == digest
        and _has_its_ports(launched, addresses)
    ):
        check()
        launched.require_running()
        watchdog.check()
        seconds = time.monotonic() - began
        if seconds >= told + TELL_S:
            told = seconds
            on_loading(read_loading(launched.log, seconds, deployment.engines()))
        time.sleep(_POLL_S)
    if not launched.command.container:  # where the guard could not have it made private
        close_shared_memory(launched.command.shm_prefix)
    try:
        probe.probe(addresses.grpc, _ANSWER_S)
    except ServerError as error:
        launched.require_running()  # if it died meanwhile, that message says more
        if triton_log.tells_lost_stub(error.message):
            raise Mishap(error.message, error.hint) from error
        raise
    state = ServerState(
        deployment=deployment.name,
        digest=digest,
        addresses=addresses,
        server=launched.server,
        guard=identify(launched.guard.pid),
        shm_prefix=launched.command.shm_prefix,
        container=launched.command.container,
        supervisor=supervisor_of(deployment.name, lasting=True),
        shared=share is not None,
        started=now(),
    )
    write_state(state_file(deployment), state)
    return RunningServer(state, launched, state_file(deployment), share)
