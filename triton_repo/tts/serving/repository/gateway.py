"""What all manifests share: how a template is rendered, and what they say of the gateway: its
deployment file, image, port, and what it mounts.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml

from tts.base import paths
from tts.base.errors import ServerError
from tts.build.manifest import MANIFEST_FILE
from tts.build.spec import Deployment
from tts.build.tensorrt.docker import with_link_targets

PACKAGE = "tts-toolkit"
"""Name of the wheel, and of the image that the Dockerfile makes of it."""
PORT, METRICS_PORT = 8080, 9090
HOME = Path("/var/lib/tts")
"""TTS_HOME in the image."""
CHECKPOINTS = HOME / "checkpoints"
"""In a pod: the volume with a folder of the checkpoint of each engine, named by its role."""
DEPLOYMENT_FILE = "/etc/tts/deployment.yaml"
KEYS_FOLDER = "gateway"
"""Folder under TTS_HOME of the keys and the request log."""
LIVE, READY = "/health", "/ready"
"""Whether the process answers; whether the engines do, asked by a real request."""
LEAD_AWAY_S = 5
"""Between the end of a pod's turn in the service and SIGTERM: until no proxy sends to it."""
GRACE_S = 100
"""Time that the gateway gives requests under way after SIGTERM."""
ENDING_S = 15
"""After the grace period: for the last answers, and the end of the process."""
QUEUE = "tts_gateway_requests_queued"
"""The metric by which gateways are added: requests admitted, and not sent to an engine yet."""


def render_template(template: Path, file: Path, values: dict[str, Any]) -> None:
    """Render one template of the templates folder; raises ServerError naming it and the line."""
    root = paths.templates_dir()
    name = template.relative_to(root).as_posix()
    try:
        text = _environment(root).get_template(name).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise ServerError(f"Template {error.name}, line {error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise ServerError(f"Template {name} cannot be rendered: {error.message}") from error
    file.write_text(text, encoding="utf-8")


@cache
def _environment(root: Path) -> jinja2.Environment:
    """A compiler of a folder's templates: each once, and again when its file has changed."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(root),
        undefined=jinja2.StrictUndefined,
        finalize=_booleans,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _booleans(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def image() -> str:
    """The image of the gateway, of the version that renders."""
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:  # a checkout that was never installed
        version = "latest"
    return f"{PACKAGE}:{version}"


def deployment_text(deployment: Deployment, host: str, port: int) -> str:
    """The deployment as YAML, for a gateway whose server is at `host` and `port`.

    Clients know a server by the deployment's digest, in which addresses do not count.
    """
    server = deployment.server.model_copy(
        update={"host": host, "grpc_port": port, "http_port": "off", "metrics_port": "auto"}
    )
    return _text(deployment.model_copy(update={"server": server}))


def _text(deployment: Deployment) -> str:
    data = deployment.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip()


def in_pod(deployment: Deployment) -> Deployment:
    """The deployment with its checkpoints where the gateway's pod has them."""
    moved: dict[str, Any] = {
        role: spec.model_copy(
            update={"checkpoint": CHECKPOINTS / ("generator" if deployment.shares_engine else role)}
        )
        for role, spec in deployment.roles().items()
    }
    return deployment.model_copy(update=moved)


def engine_manifests(deployment: Deployment) -> dict[str, Path]:
    """The manifest of each engine that is built here, by its role: the digest is made of them."""
    files = {
        role: paths.engine_dir(deployment.name, role) / MANIFEST_FILE
        for role in deployment.engines()
    }
    return {role: file for role, file in files.items() if file.is_file()}


def name_of(deployment: Deployment) -> str:
    """A name that Kubernetes accepts for every kind of resource, Services included."""
    return re.sub(r"[._]", "-", f"tts-{deployment.name}")[:50].strip("-")


def values(deployment: Deployment, name: str, ports: dict[str, int]) -> dict[str, Any]:
    """The variables of the templates for the gateway of the Triton server `name`."""
    grpc = ports["grpc"]
    return _values(
        [*ports.values()],
        deployment=deployment_text(deployment, name, grpc),
        in_pod=deployment_text(in_pod(deployment), name, grpc),
        folders=with_link_targets(spec.checkpoint for spec in deployment.engines().values()),
        manifests=engine_manifests(deployment),
        built=HOME / "built" / deployment.name,
        key=None,
        endpoints={"compose": f"{name}:{grpc}", "pods": f"dns:{name}-servers:{grpc}"},
    )


def remote_values(
    here: Deployment, inside: Deployment, occupied: Sequence[int], key: str | None
) -> dict[str, Any]:
    """The variables for the gateway of engines that it asks by URL: here, and in a cluster.

    `key` is the variable with the engines' key.
    """
    folders: list[Path] = []
    moved: dict[str, Any] = {}
    for role, spec in inside.remotes().items():
        if spec.tokenizer.is_absolute():
            folders.append(spec.tokenizer)
            moved[role] = spec.model_copy(update={"tokenizer": CHECKPOINTS / role})
    return _values(
        occupied,
        deployment=_text(here),
        in_pod=_text(inside.model_copy(update=moved)),
        folders=with_link_targets(folders),
        manifests={},
        built=None,
        key=key,
        endpoints=None,
    )


def _values(occupied: Sequence[int], **more: Any) -> dict[str, Any]:
    port, metrics = (
        next(port for port in range(first, 65536) if port not in occupied)
        for first in (PORT, METRICS_PORT)
    )
    return {
        "gateway": {
            "image": image(),
            "port": port,
            "metrics": metrics,
            "home": HOME,
            "folder": KEYS_FOLDER,
            "live": LIVE,
            "ready": READY,
            "queue": QUEUE,
            "lead_away": LEAD_AWAY_S,
            "grace": GRACE_S,
            "ending": ENDING_S,
            "file": DEPLOYMENT_FILE,
            "checkpoints": CHECKPOINTS,
            "state": paths.gateway_dir(),
            **more,
        }
    }
