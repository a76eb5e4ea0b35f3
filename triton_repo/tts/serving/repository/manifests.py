"""Manifests that serve a deployment elsewhere: docker compose, and Kubernetes."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from tts.base import paths
from tts.base.errors import ConfigError
from tts.build.inputs import Inputs
from tts.build.spec import Deployment, HttpPort, ServerSpec
from tts.build.tensorrt import docker
from tts.build.tensorrt.engine_memory import ranks_of
from tts.build.tensorrt.gpus import GIB, gpus_of
from tts.engines import wire

from ..command.ports import Addresses
from ..command.server_command import arguments, served_by
from ..command.tritonserver import CONTAINER_HOME, SERVER_IN_CONTAINER, container_folders, image
from . import gateway
from .digest import DIGEST, deployment_digest
from .model_configs import model_configs
from .render import render_models

PROBE = "/opt/tts/probe.py"
"""Path of the probe in a container."""
MODELS, ENGINES = Path("/opt/tts/models"), Path("/opt/tts/engines")
"""In a pod: the model repository, and the volume with a folder for each engine."""
_SHM_PREFIX = "tts-"  # a container's shared memory is its own, so any prefix will do


def require_manifests(deployment: Deployment) -> None:
    """Refuse a deployment that no manifests can be made of; raises ConfigError."""
    if deployment.target != "tensorrt":
        raise ConfigError(
            f"Deployment {deployment.name!r} has target {deployment.target}; manifests are for "
            "target tensorrt, whose container holds all that the server needs."
        )


def render_manifests(deployment: Deployment, folder: Path) -> list[Path]:
    """Render every manifest of a deployment for NVIDIA's container; returns the files."""
    require_manifests(deployment)
    values = _common(deployment)
    values |= gateway.values(deployment, values["name"], values["ports"])
    rendered = {
        "compose.yaml": values | _compose(deployment),
        "deployment.yaml": values,
        "kubernetes.yaml": values | _kubernetes(deployment),
        "gateway.yaml": values,
        "autoscaler.yaml": values,
        "prometheus-adapter.yaml": values,
    }
    templates = paths.templates_dir() / "deploy"
    folder.mkdir(parents=True, exist_ok=True)
    for name, filled in rendered.items():
        gateway.render_template(templates / f"{name}.j2", folder / name, filled)
    shutil.copyfile(templates / "probe.py", folder / "probe.py")
    return [folder / name for name in (*rendered, "probe.py")]


def manifest_ports(spec: ServerSpec) -> dict[str, int]:
    """The ports of a server elsewhere by protocol: three different ones.

    Each is the deployment's, else Triton's own, else the next that no other has taken. HTTP is
    open even if the deployment says "off": the probes of the manifests use it.
    """
    choices: dict[str, tuple[HttpPort, int]] = {
        "grpc": (spec.grpc_port, 8001),
        "http": (spec.http_port, 8000),
        "metrics": (spec.metrics_port, 8002),
    }
    ports = {name: port for name, (port, _) in choices.items() if isinstance(port, int)}
    own = {name: default for name, (_, default) in choices.items() if name not in ports}
    for name, default in own.items():
        occupied = {*ports.values(), *(port for other, port in own.items() if other != name)}
        ports[name] = next(port for port in count(default) if port not in occupied)
    return {name: ports[name] for name in choices}


def one_replica(deployment: Deployment) -> Deployment:
    """The deployment as one pod serves it: one replica, on GPUs that count from 0."""
    engines = deployment.engines()
    first = {role: spec.placement.replicas[0] for role, spec in engines.items()}
    number = {gpu: n for n, gpu in enumerate(sorted({g for gpus in first.values() for g in gpus}))}
    alone: dict[str, Any] = {
        role: spec.model_copy(
            update={
                "tensorrt": spec.placement.model_copy(
                    update={"gpus": (tuple(number[gpu] for gpu in first[role]),)}
                )
            }
        )
        for role, spec in engines.items()
    }
    return deployment.model_copy(update=alone)


def _common(deployment: Deployment) -> dict[str, Any]:
    configs = model_configs(deployment)
    return {
        "deployment": deployment,
        "name": gateway.name_of(deployment),
        "image": image(deployment),
        "ports": manifest_ports(deployment.server),
        "probe": PROBE,
        "models": [name for name in (wire.GENERATOR, wire.PRM) if name in configs],
        "replicas": max(len(e.placement.replicas) for e in deployment.engines().values()),
        "waiting": max(1, deployment.engines()["generator"].max_batch_size // 4),
        DIGEST: deployment_digest(deployment),
    }


def _compose(deployment: Deployment) -> dict[str, Any]:
    words, variables = _command(deployment, paths.repository_dir(deployment.name))
    return {
        "words": words,
        "folders": container_folders(deployment),
        "gpus": gpus_of(deployment),
        "variables": CONTAINER_HOME | variables,
        "user": f"{os.getuid()}:{os.getgid()}",
        "shm_size": f"{docker.SHARED_MEMORY_GIB}g",
        "stack": docker.STACK_BYTES,
    }


def _kubernetes(deployment: Deployment) -> dict[str, Any]:
    pod = one_replica(deployment)
    words, variables = _command(pod, MODELS)
    files, places = {}, {}
    built = paths.built_dir(deployment.name)
    with tempfile.TemporaryDirectory(prefix="tts-") as temporary:
        root = Path(temporary) / "models"
        # of the whole deployment: by it clients recognise what a pod serves
        configs = model_configs(pod, digest=deployment_digest(deployment))
        for parameter in (each for c in configs.values() for each in c.parameters.values()):
            here = parameter.string_value
            parameter.string_value = here.replace(f"{built}/", f"{ENGINES}/")
        render_models(pod, configs, root)
        for version in root.glob("*/1"):
            if not any(version.iterdir()):  # a ConfigMap cannot hold an empty folder
                (version / "empty").touch()
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            place = file.relative_to(temporary).as_posix()
            key = file.relative_to(root).as_posix().replace("/", ".")
            files[key], places[key] = file.read_text(encoding="utf-8"), place
    probe = paths.templates_dir() / "deploy" / "probe.py"
    files["probe.py"], places["probe.py"] = probe.read_text(encoding="utf-8"), "probe.py"
    return {
        "words": words,
        "variables": CONTAINER_HOME | variables,
        "gpus": gpus_of(pod),
        "files": files,
        "places": places,
        "requests": _requests(pod),
        "shm_gib": docker.SHARED_MEMORY_GIB,
        "built": built,
        "repository": MODELS,
        "engines": ENGINES,
    }


def _requests(pod: Deployment) -> dict[str, str]:
    """What a pod asks of its node: a core for the server and for each rank; memory for all weights
    at once, which pass through it to the GPUs, for the shared memory and the KV blocks kept there.
    """
    shapes, engines = Inputs(pod).shapes(), pod.engines()
    ranks = [rank for role, spec in engines.items() for rank in ranks_of(shapes[role], spec)]
    offloaded = sum(spec.placement.kv_host_gib for spec in engines.values())
    gib = sum(rank.weights for rank in ranks) / GIB + docker.SHARED_MEMORY_GIB + offloaded
    return {"cpu": str(len(ranks) + 1), "memory": f"{math.ceil(gib)}Gi"}


def _command(deployment: Deployment, repository: Path) -> tuple[list[str], dict[str, str]]:
    ports = manifest_ports(deployment.server)
    everywhere = Addresses("0.0.0.0", ports["grpc"], ports["http"], ports["metrics"])
    served = arguments(repository, everywhere, _SHM_PREFIX)
    return served_by(deployment, SERVER_IN_CONTAINER, served)
