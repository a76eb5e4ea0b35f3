"""Servers of started engines, NVIDIA's MPS daemon beside those that share a GPU, and all servers of
a deployment in the order in which they start.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import textwrap
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cached_property
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tts.base import paths
from tts.base.errors import ServerError
from tts.base.user_paths import private_folder
from tts.build.failures import cause_of_end
from tts.build.spec import Deployment, Role
from tts.build.started.command import command_of, require_labels
from tts.build.started.engines import ENGINES
from tts.build.started.memory import shares
from tts.engines.loading import COMPILING, OPEN, READING, Stage

from ..command import guard
from ..command.ports import Addresses, address, choose_port, socket_path
from ..command.server_command import (
    ServerCommand,
    engine_command,
    find_program,
    installed_version,
    new_mark,
)
from .launch import PortTaken
from .locks import writable
from .service import CommandAt, Service
from .triton import Triton
from .triton_log import LOADING, Loading, tail

HOST = "127.0.0.1"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_ANSWER_S = 1.0
_SHOWN_LINES = 3
_STAGES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), doing)
    for pattern, doing in (
        (r"checkpoint shards: +(\d+)%|Loading weights.*? (\d+)%", READING),
        (r"Loading weights|Load weight|load_tensors:|Starting to load|loading model", READING),
        (r"Downloading .*? (\d+)%", "downloading"),
        (r"Dynamo bytecode|torch\.compile takes|Compiling a graph|Autotuning", COMPILING),
        (r"Capturing (?:CUDA|cuda) graph.*? (\d+)%", "capturing graphs"),
        (r"Capturing (?:CUDA|cuda) graph|Capture cuda graph", "capturing graphs"),
        (r"Application startup complete|server is listening on", OPEN),
    )
)
"""What the lines of an engine's log say of its start; a number is the percentage that is done."""
_PORT_TAKEN = re.compile(
    r"[Aa]ddress already in use|couldn't bind HTTP server|port is already alloc"
)


class Engine(Service):
    """The server of a role's engine. With one model in both roles it is the generator's."""

    def __init__(self, deployment: Deployment, role: Role) -> None:
        self.role = role
        self.spec = deployment.started()[role]
        roles: tuple[Role, ...] = (role,)
        if shares(deployment):
            roles = ("generator", "verifier")
        title = f"{self.spec.target} server of the {' and the '.join(roles)}"
        folder = paths.server_dir(deployment.name) / role
        super().__init__(deployment, title, roles, folder, f"{self.spec.target}.log")

    @cached_property
    def digest(self) -> str:
        """See Service: of the command, and of where its program is."""
        command = command_of(self.deployment, self.role, 1)
        place = str(self.spec.executable), self.spec.container
        served = [command.argv, sorted(command.env.items()), place, self.deployment.mps]
        return hashlib.sha256(json.dumps(served).encode()).hexdigest()

    def prepare(self, say: Callable[[str], None]) -> tuple[dict[str, str], CommandAt]:
        """See Service."""
        # a model that does not fit is refused before the rest
        command_of(self.deployment, self.role, 1)
        program, engine = find_program(self.role, self.spec), ENGINES[self.spec.target]
        with writable(self):
            private_folder(self.folder)
        where = f"in the container {self.spec.container}" if self.spec.container else str(program)
        version = installed_version(program, self.spec.target)
        require_labels(self.deployment, self.role, version or "")
        if version and not version.startswith(engine.version):
            where += f" (version {version}; its options were read from {engine.version})"
        say(f"Starting the {self.title}: {where}, {self.spec.checkpoint}")
        key = secrets.token_hex(16) if engine.key_variable else ""
        return dict(os.environ), lambda addresses: self._command(program, addresses, key)

    def planned_command(self) -> ServerCommand:
        """See Service."""
        program = None
        with suppress(ServerError):  # it may be for another machine
            program = find_program(self.role, self.spec)
        return self._command(program)

    def _command(
        self, program: Path | None, addresses: Addresses | None = None, key: str = ""
    ) -> ServerCommand:
        """The command at these addresses, or at new ones with this key."""
        if addresses is None:
            port = choose_port(HOST, f"{self.role}.port", self.spec.port)
            addresses = Addresses(HOST, 0, port, 0, api_key=key)
        mps = mps_variables(self.deployment)
        return engine_command(self.deployment, self.role, addresses, mps, program)

    def answers(self, addresses: Addresses) -> bool:
        """See Service."""
        where = address(addresses.host, addresses.http_port)
        headers = {"Authorization": f"Bearer {addresses.api_key}"} if addresses.api_key else {}
        connection = HTTPConnection(where, timeout=_ANSWER_S)
        try:
            connection.request("GET", ENGINES[self.spec.target].ready, headers=headers)
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def loading(self, seconds: float) -> Loading:
        """See Service."""
        stage = read_stage(self.role, tail(self.log))
        return Loading(seconds, dict.fromkeys(self.roles, stage))

    def failure(self, status: int) -> ServerError:
        """See Service."""
        lines, hint = tail(self.log), f"Its log: {self.log}"
        if any(map(_PORT_TAKEN.search, lines)):
            return PortTaken(f"The {self.title} found its port taken.", hint=hint)
        cause = cause_of_end(lines, 0 if status == guard.ENDED else status)
        excerpt = f"It says: {textwrap.shorten(cause.line, 300, placeholder=' ...')}"
        hint = "\n".join(filter(None, (cause.hint, excerpt, hint)))
        return ServerError(f"The {self.title} stopped. {cause.sentence}", hint=hint)

    def where(self, addresses: Addresses) -> str:
        """See Service."""
        return f"{self.title}, {addresses.url}"


class Mps(Service):
    """NVIDIA's MPS daemon, with folders of its own, for the started engines of a deployment."""

    PROGRAM = "nvidia-cuda-mps-control"

    def __init__(self, deployment: Deployment) -> None:
        folder = paths.server_dir(deployment.name) / "mps"
        super().__init__(deployment, "MPS daemon", (), folder, "mps.log")

    @property
    def digest(self) -> str:
        """See Service: it is the same for all."""
        return "mps"

    def prepare(self, say: Callable[[str], None]) -> tuple[dict[str, str], CommandAt]:
        """See Service."""
        if not shutil.which(self.PROGRAM):
            raise ServerError(
                f"mps is true, and there is no {self.PROGRAM} on PATH.",
                hint="It comes with NVIDIA's driver; without it remove mps from the deployment.",
            )
        with writable(self):
            private_folder(self.folder)
            for place in mps_variables(self.deployment).values():
                shutil.rmtree(place, ignore_errors=True)  # a killed daemon leaves its files
                private_folder(private_folder(Path(place).parent) / Path(place).name)
        say(f"Starting NVIDIA's {self.title}")
        return dict(os.environ), lambda addresses: self.planned_command()

    def planned_command(self) -> ServerCommand:
        """See Service."""
        variables = mps_variables(self.deployment)
        devices = sorted({gpu for s in self.deployment.started().values() for gpu in s.devices})
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
        # in the foreground: its guard ends it, and sees it die
        return ServerCommand([self.PROGRAM, "-f"], variables, new_mark(), Addresses(HOST, 0, 0, 0))

    def answers(self, addresses: Addresses) -> bool:
        """See Service: its clients find it by this pipe."""
        return (Path(mps_variables(self.deployment)[_PIPES]) / "control").exists()

    def loading(self, seconds: float) -> Loading:
        """See Service."""
        return Loading(seconds, {})

    def failure(self, status: int) -> ServerError:
        """See Service."""
        last = "; ".join(tail(self.log)[-_SHOWN_LINES:]) or "it said nothing"
        return ServerError(
            f"The {self.title} stopped (status {status}): {last:.600}",
            hint=f"Its log: {self.log}\nWithout it: remove mps from the deployment.",
        )

    def where(self, addresses: Addresses) -> str:
        """See Service."""
        return self.title


def mps_variables(deployment: Deployment) -> dict[str, str]:
    """The variables that lead to the MPS daemon of a deployment; none without one.

    The folder of its pipes is short, as its sockets' paths must be.
    """
    if not deployment.mps:
        return {}
    place = socket_path(deployment.name).parent
    place = place.with_name(f"{place.name}-mps")
    return {_PIPES: str(place / "pipes"), _LOGS: str(place / "logs")}


def read_stage(role: str, lines: list[str]) -> Stage:
    """The present work of an engine that starts, by its log: that of the last line that tells."""
    for line in reversed(lines):
        for pattern, doing in _STAGES:
            if match := pattern.search(line):
                percent = next(filter(None, match.groups()), None)
                return Stage(role, doing, int(percent) / 100 if percent else None)
    return Stage(role, LOADING)


def services_of(deployment: Deployment) -> list[Service]:
    """Every server of a deployment: what the started engines need, these, and the compiled ones'.

    Engines start one after the other, so that each finds the memory that the plan has for it.
    """
    services = started_services(deployment, deployment.started())
    if deployment.engines() and deployment.server.kind == "triton":
        services.append(Triton(deployment))
    return services


def started_services(deployment: Deployment, roles: Collection[Role]) -> list[Service]:
    """The servers of the engines of these roles that are started, and what they need."""
    engines: list[Service] = [
        Engine(deployment, each) for each in deployment.started() if each in roles
    ]
    return [Mps(deployment), *engines] if deployment.mps and engines else engines
