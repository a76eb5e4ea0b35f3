"""Noticing within a second or two that a server or one of its processes died.

Triton itself does not notice: with a killed stub it stays "ready" while every request fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.spec import Deployment

from ..command.tritonserver import STUB
from .probe import probe, served_roles
from .state import LOG, STATE, Identity, ServerState, death, identify, peek_state, signal_of
from .supervisor import supervisor_of


@dataclass(frozen=True)
class Health:
    """The processes that must stay alive for a server to answer."""

    state: ServerState
    stubs: dict[Identity, str]
    """The Python stubs that ran when the server became ready, each with its model's name."""

    def check(self) -> None:
        """Raise ServerError naming what died. Takes less than a millisecond.

        A server that we did not start is asked for a real inference instead.
        """
        server = self.state.server
        if server is None:
            address = self.state.addresses.grpc
            probe(address, roles=served_roles(address))
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
    stubs: dict[Identity, str] = {}
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
