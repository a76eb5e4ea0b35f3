"""Manifests of engines that are started: docker compose and Kubernetes, with the engines' images.

The gateway in front of them asks them by URL: its deployment file has them as servers that run
already. Engines on one GPU share a pod's only container, as Kubernetes gives a GPU to one; there
the second starts once the first has its memory.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tts.base import paths
from tts.base.errors import ConfigError
from tts.build.spec import (
    Deployment,
    RemoteGenerator,
    RemoteSpec,
    RemoteVerifier,
    Role,
    StartedSpec,
    StartedVerifier,
)
from tts.build.started.command import command_of
from tts.build.started.engines import ENGINES
from tts.build.tensorrt.docker import SHARED_MEMORY_GIB, with_link_targets

from ..command.server_command import HUB_CACHE, hub_cache
from . import gateway

MODELS = Path("/opt/tts/models")
"""In a pod: the volume with a folder for each checkpoint that is not on the hub, and the cache of
those that are.
"""
KEY = "TTS_ENGINE_KEY"
"""The variable with the key that engines want and the gateway sends."""
_FIRST_PORT = 8000
_ANYWHERE = "0.0.0.0"


@dataclass(frozen=True)
class EngineServer:
    """One engine as a manifest has it."""

    role: Role
    spec: StartedSpec
    port: int
    words: tuple[str, ...]
    variables: Mapping[str, str]
    """Without the key's."""

    @property
    def image(self) -> str:
        """Its container's."""
        return str(self.spec.container)

    @property
    def asks(self) -> str:
        """A line of bash that ends well once it is ready: images have neither curl nor python."""
        ask = f"GET {self.ready} HTTP/1.0\\r\\n\\r\\n"
        return (
            f"exec 3<>/dev/tcp/127.0.0.1/{self.port} && printf '{ask}' >&3 && "
            'read -t 20 -r _ status _ <&3 && [ "$status" = 200 ]'
        )

    @property
    def key_variable(self) -> str | None:
        """The variable in which it wants the key."""
        return ENGINES[self.spec.target].key_variable

    @property
    def ready(self) -> str:
        """The path that answers once its model is loaded."""
        return ENGINES[self.spec.target].ready


def require_engine_manifests(deployment: Deployment) -> None:
    """Refuse a deployment of started engines that no manifests can be made of: ConfigError."""
    others = set(deployment.roles()) - {*servers_of(deployment)}
    subject, why, hint = f"Deployment {deployment.name!r}", "", ""
    if deployment.engines():
        why, hint = "has a compiled engine beside one that is started", "Serve it by itself."
    elif deployment.mps:
        why = "has mps, and a container cannot see the daemon of another"
        hint = "Remove mps; on Kubernetes NVIDIA's device plugin can share GPUs by MPS."
    elif "generator" in others:
        why, hint = "starts the verifier alone", "Start its server with the line of `tts plan`."
    if why:
        raise ConfigError(f"{subject} {why}: no manifests are made of it.", hint=hint)


def servers_of(deployment: Deployment) -> dict[Role, EngineServer]:
    """The engines as containers have them, whose ports are not of this machine."""
    servers: dict[Role, EngineServer] = {}
    inside: dict[str, Any] = {
        role: spec.model_copy(
            update={"container": spec.container or ENGINES[spec.target].image, "executable": None}
        )
        for role, spec in deployment.started().items()
    }
    deployment = deployment.model_copy(update=inside)
    occupied = {spec.port for spec in deployment.started().values()}
    for number, (role, spec) in enumerate(deployment.started().items(), start=_FIRST_PORT):
        free = next(port for port in count(number) if port not in occupied)
        port = spec.port if spec.port != "auto" else free
        command = command_of(deployment, role, port, host=_ANYWHERE)
        servers[role] = EngineServer(role, spec, port, command.argv, command.env)
    return servers


def render_engine_manifests(deployment: Deployment, folder: Path) -> list[Path]:
    """Render every manifest of started engines; returns the files. Raises ConfigError."""
    require_engine_manifests(deployment)
    name = gateway.name_of(deployment)
    servers = servers_of(deployment)
    pods = list(_pods(deployment, name))
    key = KEY if any(server.key_variable for server in servers.values()) else None
    here = as_remote(deployment, {role: role for role in servers}, servers)
    inside = as_remote(deployment, {r: p["name"] for p in pods for r in p["roles"]}, servers)
    values: dict[str, Any] = {
        "deployment": deployment,
        "name": name,
        "servers": servers,
        "pods": pods,
        "ports": {role: server.port for role, server in servers.items()},
        "models": MODELS,
        "hub": {"variable": HUB_CACHE, "folder": hub_cache()},
        "folders": {role: with_link_targets(_paths(s.spec)) for role, s in servers.items()},
        "shm_gib": SHARED_MEMORY_GIB,
        "waiting": max(1, deployment.generator.in_flight_requests // 4),
        "deployment_digest": "",
        **gateway.remote_values(here, inside, [s.port for s in servers.values()], key),
    }
    folder.mkdir(parents=True, exist_ok=True)
    templates = paths.templates_dir() / "deploy"
    files = {
        "compose.yaml": "engines-compose.yaml.j2",
        "deployment.yaml": "deployment.yaml.j2",
        "kubernetes.yaml": "engines-kubernetes.yaml.j2",
        "gateway.yaml": "gateway.yaml.j2",
        "prometheus-adapter.yaml": "prometheus-adapter.yaml.j2",
    }
    for file, template in files.items():
        gateway.render_template(templates / template, folder / file, values)
    return [folder / file for file in files]


def as_remote(
    deployment: Deployment, hosts: Mapping[Role, str], servers: Mapping[Role, EngineServer]
) -> Deployment:
    """The deployment as one whose engines run already, at these hosts."""
    update: dict[str, Any] = {"target": "openai"}
    for role, spec in deployment.roles().items():
        if not isinstance(spec, StartedSpec):
            continue
        shared = isinstance(spec, StartedVerifier) and spec.same_as is not None
        server = servers["generator" if shared else role]
        kind: type[RemoteSpec] = RemoteGenerator if role == "generator" else RemoteVerifier
        data = {name: value for name, value in spec if name in kind.model_fields}
        data["url"] = (f"http://{hosts[server.role]}:{server.port}",)
        data["tokenizer"] = spec.tokenizer_folder
        data["api_key_env"] = KEY if server.key_variable else None
        update[role] = kind.model_construct(**data)
    return deployment.model_copy(update=update | {"gpu": None, "deterministic": False})


def _pods(deployment: Deployment, name: str) -> Sequence[dict[str, Any]]:
    """What one pod runs: an engine, or those that share a GPU; raises ConfigError."""
    started = deployment.started()
    groups: list[list[Role]] = [[role] for role in started]
    if deployment.gpu and len(started) == 2:
        devices_of = [{*spec.devices} for spec in started.values()]
        if devices_of[0] & devices_of[1]:
            groups = [[*started]]
    pods = []
    for roles in groups:
        devices = sorted({gpu for role in roles for gpu in started[role].devices})
        number = {gpu: place for place, gpu in enumerate(devices)}
        moved: dict[str, Any] = {
            role: started[role].model_copy(
                update={"gpus": tuple(number[gpu] for gpu in started[role].devices)}
            )
            for role in roles
        }
        inside = servers_of(deployment.model_copy(update=moved))
        servers = [inside[role] for role in roles]
        if len({server.image for server in servers}) > 1:
            raise ConfigError(
                f"Deployment {deployment.name!r}: two images share a GPU, which a pod cannot: "
                f"{' and '.join(server.image for server in servers)}.",
                hint="Give each engine a GPU of its own (gpus), or both the same container.",
            )
        variables = {key: value for server in servers for key, value in server.variables.items()}
        pods.append(
            {
                "name": f"{name}-{'engines' if len(roles) > 1 else roles[0]}",
                "roles": roles,
                "servers": servers,
                "image": servers[0].image,
                "words": _words(servers),
                "variables": variables,
                "keys": sorted({s.key_variable for s in servers if s.key_variable}),
                "gpus": len(devices) if deployment.gpu else 0,
            }
        )
    return pods


def _words(servers: Sequence[EngineServer]) -> list[str]:
    """The words of a pod's container: of several engines a script that ends with any of them."""
    lines = []
    for server in servers:
        inside = {str(path): str(MODELS / server.role) for path in _paths(server.spec)}
        words = [inside.get(word, word) for word in server.words]
        if len(servers) == 1:
            return words
        lines += [f"{shlex.join(words)} &"]
        lines += [f"until ({server.asks}) 2>/dev/null; do kill -0 $! || exit 1; sleep 2; done"]
    return ["bash", "-c", "\n".join([*lines, "wait -n", "exit 1"])]


def _paths(spec: StartedSpec) -> list[Path]:
    places = [spec.checkpoint, spec.tokenizer]
    return [place for place in places if place and place.is_absolute()]
