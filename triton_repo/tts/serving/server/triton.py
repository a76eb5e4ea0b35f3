"""The Triton server of a deployment's compiled engines."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import psutil

from tts.base import paths
from tts.base.errors import CheckpointError, ServerError
from tts.base.user_paths import private_folder
from tts.build.failures import known_cause
from tts.build.openvino.memory import require_memory, shortage
from tts.build.spec import Deployment

from ..command import environment
from ..command.ports import Addresses, address, choose_addresses, is_loopback, socket_path
from ..command.server_command import ServerCommand, server_command
from ..command.tritonserver import STUB, Docker, TritonServer, find_runtime, image
from ..repository.digest import deployment_digest
from ..repository.render import render_repository, require_engines, require_something
from . import probe, triton_log
from .launch import PortTaken, after_the_last_guard
from .locks import writable
from .service import CommandAt, Service
from .state import ProcessIdentity, ServerState, TransientStartError, identify
from .triton_log import Loading, read_loading

LOG = "triton.log"


class Triton(Service):
    """The server of the engines that are compiled. Those of openvino log their iterations."""

    def __init__(self, deployment: Deployment) -> None:
        folder = paths.server_dir(deployment.name)
        super().__init__(deployment, "Triton server", deployment.engines(), folder, LOG)

    @cached_property
    def digest(self) -> str:
        """See Service."""
        return deployment_digest(self.deployment)

    def prepare(self, say: Callable[[str], None]) -> tuple[dict[str, str], CommandAt]:
        """See Service: the repository is rendered.

        Raises ServerError (no tritonserver), BuildError (an engine is missing or old) or
        ConfigError (this machine's memory cannot hold the pair).
        """
        deployment = self.deployment
        require_something(deployment)
        if deployment.target == "openvino":
            with suppress(CheckpointError):  # refused with the engines, by what is wrong with it
                if short := shortage(require_memory(deployment)):
                    say(short)
        runtime = find_runtime(deployment)
        if deployment.target != "openvino":  # without them the others cannot even be rendered
            require_engines(deployment)
        with writable(self), after_the_last_guard(self.folder):
            render_repository(deployment, iteration_log=deployment.target == "openvino")
            variables = dict(os.environ)
            if isinstance(runtime, TritonServer):
                variables = environment.prepare(runtime, environment.folder(deployment))
        if not is_loopback(deployment.server.host):
            say(f"Listening on {deployment.server.host}: others can reach this server.")
        say(f"Starting {runtime.describe()}")
        grpc_socket = socket_path(deployment.name)

        def command(addresses: Addresses | None) -> ServerCommand:
            where = addresses or choose_addresses(deployment.server, grpc_socket)
            if where.socket:
                private_folder(private_folder(grpc_socket.parents[1]) / grpc_socket.parent.name)
            return server_command(runtime, deployment, where)

        return variables, command

    def planned_command(self) -> ServerCommand:
        """See Service. Where no server for NVIDIA's GPUs can run, it is for a machine where it
        can.
        """
        try:
            runtime = find_runtime(self.deployment)
        except ServerError:
            if self.deployment.target == "openvino":
                raise
            runtime = Docker(image(self.deployment))
        addresses = choose_addresses(self.deployment.server, socket_path(self.deployment.name))
        return server_command(runtime, self.deployment, addresses)

    def answers(self, addresses: Addresses) -> bool:
        """See Service: with this deployment, as another server may have won a race for a port."""
        where = addresses.grpc
        return probe.is_ready(where) and probe.served_digest(where) == self.digest

    def confirm(self, addresses: Addresses, timeout_s: float = 30.0) -> None:
        """See Service."""
        try:
            probe.probe(addresses.grpc, timeout_s)
        except ServerError as error:
            if triton_log.tells_lost_stub(error.message):
                raise TransientStartError(error.message, error.hint) from error
            raise

    def loading(self, seconds: float) -> Loading:
        """See Service."""
        return read_loading(self.log, seconds, self.roles)

    def failure(self, status: int) -> ServerError:
        """See Service."""
        hint = f"Its log: {self.log}"
        reason = triton_log.failure(self.log) or f"exit status {status}, no message"
        if triton_log.tells_lost_stub(reason):
            return TransientStartError(f"The Triton server stopped: {reason}.", hint=hint)
        if triton_log.port_was_taken(self.log):
            return PortTaken(f"The Triton server stopped: {reason}.", hint=hint)
        if cause := known_cause(triton_log.tail(self.log)):
            excerpt = textwrap.shorten(reason, 300, placeholder=" ...")
            return ServerError(cause.sentence, hint=f"{cause.hint}\nIt says: {excerpt}\n{hint}")
        return ServerError(f"The Triton server stopped: {reason}.", hint=hint)

    def where(self, addresses: Addresses) -> str:
        """See Service."""
        return f"gRPC {addresses.grpc}, metrics http://{addresses.metrics}/metrics"

    def external(self) -> ServerState | None:
        """See Service: what answers at the deployment's gRPC port."""
        spec = self.deployment.server
        if spec.grpc_port == "auto":
            return None
        where = address(spec.host, spec.grpc_port)
        digest = probe.served_digest(where)
        if digest is None:
            return None
        if digest != self.digest:
            raise ServerError(
                f"Another Triton server answers at {where} (server.grpc_port) and does not serve "
                f"deployment {self.deployment.name}.",
                hint="Stop it, or give the deployment another port.",
            )
        http = spec.http_port if isinstance(spec.http_port, int) else 0
        metrics = spec.metrics_port if isinstance(spec.metrics_port, int) else 0
        addresses = Addresses(spec.host, spec.grpc_port, http, metrics)
        return ServerState(self.deployment.name, digest, addresses)

    def parts(self, server: psutil.Process) -> Mapping[ProcessIdentity, str]:
        """See Service: the Python stubs that run now."""
        stubs: dict[ProcessIdentity, str] = {}
        children = []
        with suppress(psutil.NoSuchProcess):  # it has just died
            children = server.children(recursive=True)  # under mpirun they are grandchildren
        for child in children:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                words = child.cmdline()
                # "<stub> <repository>/<model>/<version>/model.py ..."
                if words and Path(words[0]).name == STUB:
                    model = Path(words[1]).parents[1].name
                    stubs[identify(child.pid)] = f"Python stub of model {model}"
        return stubs
