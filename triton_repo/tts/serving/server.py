"""The server of a deployment: start it, find it, stop it."""

from __future__ import annotations

import atexit
import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.spec import Deployment

from . import environment, guard, probe
from .health import Health, observe, watch
from .launch import Launched, PortTaken, launch
from .ports import Addresses, address, choose_addresses
from .repository import deployment_digest, iteration_logs, render_repository
from .state import ServerState, clean_up, identify, now, read_state, write_state
from .tritonserver import find_tritonserver

READY_TIMEOUT_S = 600.0
"""Default deadline of a start; loading a large engine takes minutes."""
_ATTEMPTS = 3
_POLL_S = 0.05
_LOOPBACK = ("127.", "::1", "localhost")


class RunningServer:
    """A ready server that this process started. It never outlives this process.

    A context manager: leaving it stops the server.
    """

    def __init__(self, state: ServerState, launched: Launched, state_file: Path) -> None:
        self.state = state
        self.health = observe(state)
        self.log = launched.log
        self._launched = launched
        self._state_file = state_file
        atexit.register(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def addresses(self) -> Addresses:
        """Where it listens."""
        return self.state.addresses

    def check(self) -> None:
        """Raise ServerError naming what died, if anything did. Takes less than a millisecond."""
        self._launched.require_running()
        self.health.check()

    async def watch(self, interval_s: float = 1.0) -> None:
        """Check for ever, every `interval_s` seconds; ends only by raising ServerError."""
        await watch(self.check, interval_s)

    def stop(self) -> None:
        """Stop the server and wait until nothing of it is left; harmless when repeated.

        The guard carries it out, so it is completed even if this call is interrupted.
        """
        try:
            self._launched.stop()
        finally:
            if read_state(self._state_file) in (None, self.state):
                self._state_file.unlink(missing_ok=True)
            atexit.unregister(self.stop)


def start_server(
    deployment: Deployment,
    *,
    iteration_log: bool = False,
    say: Callable[[str], None] = lambda line: None,
    ready_timeout_s: float = READY_TIMEOUT_S,
) -> RunningServer:
    """Render the repository, launch tritonserver and return when both models have answered.

    `say` gets one line per stage. Raises ServerError (no tritonserver, port in use, a model that
    does not load, not ready in time, already running) or BuildError (an engine is missing or old).
    """
    folder = paths.server_dir(deployment.name)
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one_start(folder, deployment.name):
        if running := find_server(deployment):
            raise ServerError(
                f"Deployment {deployment.name} is already served by {running}.",
                hint=f"Use it, or stop it: tts serve {deployment.name} --stop",
            )
        tritonserver = find_tritonserver(deployment.target)
        repository = render_repository(deployment, iteration_log=iteration_log)
        digest = deployment_digest(deployment)
        surroundings = environment.prepare(tritonserver, folder / "runtime")
        if not deployment.server.host.startswith(_LOOPBACK):
            say(f"Listening on {deployment.server.host}: others can reach this server.")
        say(f"Starting {tritonserver.describe()}")
        for file in iteration_logs(deployment).values():
            file.unlink(missing_ok=True)  # the last server's; its iterations counted from 0, too
        for attempt in range(1, _ATTEMPTS + 1):
            addresses = choose_addresses(deployment.server)
            launched = launch(
                tritonserver, surroundings, repository, addresses, folder / "triton.log"
            )
            try:
                _wait_ready(launched, addresses, digest, ready_timeout_s)
                state = ServerState(
                    deployment=deployment.name,
                    digest=digest,
                    addresses=addresses,
                    server=launched.server,
                    guard=identify(launched.guard.pid),
                    shm_prefix=launched.shm_prefix,
                    started=now(),
                )
                write_state(_state_file(deployment), state)
                server = RunningServer(state, launched, _state_file(deployment))
            except PortTaken:
                launched.stop()
                if attempt == _ATTEMPTS:
                    raise
            except BaseException:
                launched.stop()
                raise
            else:
                say(
                    f"Ready: gRPC at {addresses.grpc}, metrics at http://{addresses.metrics}/metrics"
                )
                return server
    raise AssertionError("unreachable")


def find_server(deployment: Deployment) -> ServerState | None:
    """The live server of a deployment: one of ours, or one that answers at its given gRPC port.

    Raises ServerError if what runs there serves something else, or an older state of the
    deployment.
    """
    state = read_state(_state_file(deployment))
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
            f"{state} serves {deployment.name} as it was before its files were changed.".replace(
                "the server", "The server", 1
            ),
            hint=f"Stop it first: tts serve {deployment.name} --stop",
        )
    raise ServerError(
        f"Another Triton server answers at {state.addresses.grpc} (server.grpc_port) and does not "
        f"serve deployment {deployment.name}.",
        hint="Stop it, or give the deployment another port.",
    )


def stop_server(deployment: Deployment) -> bool:
    """Stop the server of a deployment that any process of this user started.

    Returns False if none runs. Raises ServerError if it belongs to someone else.
    """
    file = _state_file(deployment)
    state = read_state(file)
    if state is None:
        return False
    try:
        if state.guard and (process := state.guard.process()):
            process.terminate()
        deadline = time.monotonic() + guard.GRACE_S + 3.0
        # not psutil's wait: a guard that its parent has not reaped yet would never be gone
        while state.guard and state.guard.process() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    except psutil.AccessDenied as error:
        raise ServerError(f"PID {error.pid}, {state}, belongs to another user.") from error
    clean_up(state)
    file.unlink(missing_ok=True)
    return True


def health_of(state: ServerState) -> Health:
    """The health of a server that `find_server` found."""
    return observe(state)


def _state_file(deployment: Deployment) -> Path:
    return paths.server_dir(deployment.name) / "server.json"


def _external(deployment: Deployment, digest: str, port: int) -> ServerState:
    spec = deployment.server
    http = spec.http_port if spec.http_port != "auto" else 0
    metrics = spec.metrics_port if spec.metrics_port != "auto" else 0
    return ServerState(deployment.name, digest, Addresses(spec.host, port, http, metrics))


@contextmanager
def _only_one_start(folder: Path, name: str) -> Iterator[None]:
    with (folder / "start.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServerError(f"Another process is starting the server of {name} now.") from None
        yield


def _wait_ready(launched: Launched, addresses: Addresses, digest: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    # the digest as well: on a port lost in a race, somebody else's server may answer
    while not (probe.is_ready(addresses.grpc) and probe.served_digest(addresses.grpc) == digest):
        launched.require_running()
        if time.monotonic() > deadline:
            raise ServerError(
                f"The Triton server was not ready within {timeout_s:.0f} s.",
                hint=f"Its log: {launched.log}",
            )
        time.sleep(_POLL_S)
    try:
        probe.probe(addresses.grpc, max(1.0, deadline - time.monotonic()))
    except ServerError:
        launched.require_running()  # if it died meanwhile, that is the better message
        raise
