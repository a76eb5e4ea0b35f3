"""The check of rendered manifests: a comparison, key by key, with those that would be rendered
now.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tts.build.errors import CheckpointError
from tts.build.input_files import Unreadable, read_text
from tts.build.spec import Deployment
from tts.build.yaml_text import parse_yaml
from tts.serving.repository.check import Finding
from tts.serving.repository.manifests import render_manifests

Place = tuple[str, ...]
"""The keys that lead to a value; items of a list by their names."""

MAX_BYTES = 10_000_000
_SHARED_MEMORY = (
    "tensors pass to Triton's Python models through shared memory, of which a container has 64 MB "
    "by itself"
)
_MOUNTS = "the server finds the repository and each engine at the path it has here"
_ENVIRONMENT = "TensorRT-LLM reads it when the server starts"
_WHY = {
    "use_kv_cache_manager_v2": "the second manager sizes its pool by a share of the GPU, on which "
    "there are two models",
    "kv_cache_config": "the pools of both models share the GPU's memory",
    "shm_size": _SHARED_MEMORY,
    "shared-memory": _SHARED_MEMORY,
    "/dev/shm": _SHARED_MEMORY,
    "volumes": _MOUNTS,
    "volumeMounts": _MOUNTS,
    "environment": _ENVIRONMENT,
    "env": _ENVIRONMENT,
    "healthcheck": "a server whose models have died says that it is ready, unless it is probed",
    "startupProbe": "a pod is not ended while it loads engines",
    "readinessProbe": "a pod whose models do not answer gets no requests",
    "livenessProbe": "a server that hangs is started again",
    "ports": "clients and probes connect there",
    "devices": "the engines need GPUs, and find them by their numbers",
    "nvidia.com/gpu": "a pod gets as many GPUs as its engines are placed on",
    "command": "it is the server's command line",
    "args": "it is the server's command line",
    "image": "other containers hold other versions of TensorRT-LLM, which do not load the engines",
    "init": "without it nobody reaps the processes of the ranks",
    "user": "it must be able to read the engines and the repository of this machine",
    "ulimits": "pinned memory and the stacks of the ranks exceed docker's limits",
    "security_opt": "no process in the container may gain rights",
    "securityContext": "the server needs no rights, and must be able to read the volume",
    "automountServiceAccountToken": "the server has no business with the cluster",
    "restart": "a server that dies is to come back",
    "data": "it is the model repository of a pod, and the probe",
    "accessModes": "the pods on every node read the engines",
    "replicas": "each pod serves one replica",
    "strategy": "a surge would wait for GPUs that nobody frees",
    "annotations": "Prometheus reads them, and pods are replaced when the digest changes",
    "selector": "pods and traffic are found by these labels",
    "labels": "pods and traffic are found by these labels",
    "clusterIP": "the gateway finds every pod by an address of its own",
    "lifecycle": "nobody sends to a gateway any more when it stops",
    "terminationGracePeriodSeconds": "requests under way come to their end",
    "stop_grace_period": "requests under way come to their end",
    "type": "whoever reaches the server can end it: inside the cluster only",
    "metrics": "pods are added when requests wait",
    "scaleTargetRef": "it is these pods that are added",
    "rules": "the autoscaler asks for these metrics",
    "ingress": "whoever reaches the server's gRPC port can end it: the gateway alone",
    "podSelector": "the policy holds for these pods",
    "policyTypes": "without it the policy restricts nothing",
    "initContainers": "it copies the keys to where the gateway reads them",
    "depends_on": "the gateway starts when the server answers",
    "networks": "the gateway finds the server by this name",
    "read_only": "the gateway writes into its own folders only",
    "tmpfs": "the gateway writes into its own folders only",
    "cap_drop": "the gateway needs no rights",
}
"""What a key does; the first of them that leads to a value speaks for it."""
_OTHERWISE = "the server would run otherwise than the deployment says"
_GATEWAY = ("Deployment", "spec", "template", "spec")
_FREE = {
    ("PersistentVolumeClaim", "spec", "resources"),
    ("PersistentVolumeClaim", "spec", "storageClassName"),
    ("HorizontalPodAutoscaler", "spec", "maxReplicas"),
    (*_GATEWAY, "containers", "gateway", "image"),
    (*_GATEWAY, "containers", "gateway", "resources"),
    (*_GATEWAY, "initContainers", "keys", "image"),
}
"""Fields that belong to the cluster."""
_NAMES = ("name", "kind", "target", "mountPath", "containerPort", "key", "driver")
"""Fields that identify the items of a list."""


def check_manifests(deployment: Deployment, folder: Path) -> Iterator[Finding]:
    """The manifests in a folder against those that `tts render --manifests` would render."""
    fix = f"Render them again: tts render {deployment.named} --manifests {shlex.quote(str(folder))}"
    with tempfile.TemporaryDirectory(prefix="tts-") as temporary, suppress(CheckpointError):
        # the check of the rendering reports a CheckpointError
        for expected in render_manifests(deployment, Path(temporary)):
            file = folder / expected.name
            for place, what, severe in _file_differences(expected, file):
                where = f"{file}: {'.'.join(place)}" if place else str(file)
                why = next((why for key, why in _WHY.items() if key in place), _OTHERWISE)
                yield Finding(what, where, why, fix, "error" if severe else "warning")


Difference = tuple[Place, str, bool]
"""Where, what, and whether it is an error: something more than was rendered may be meant."""


def _file_differences(expected: Path, found: Path) -> Iterator[Difference]:
    try:
        wanted, there = (read_text(file, MAX_BYTES) for file in (expected, found))
        if expected.suffix == ".yaml":
            yield from _differences(_documents(wanted), _documents(there), ())
        else:
            yield from _differences(wanted, there, ())
    except FileNotFoundError:
        yield (), "is missing", False
    except Unreadable as error:
        yield (), f"cannot be read: {error}", True


def _documents(text: str) -> dict[str, Any]:
    """The documents of a YAML text by their kinds; one alone without, as compose and Helm have."""
    documents = [parse_yaml(part) for part in re.split(r"^---$", text, flags=re.MULTILINE)]
    if not all(isinstance(document, dict) for document in documents):
        raise Unreadable("it holds something else than mappings")
    if len(documents) == 1 and "kind" not in documents[0]:
        return dict(documents[0])
    return _by_name(documents)


def _differences(expected: Any, found: Any, place: Place) -> Iterator[Difference]:
    if place in _FREE or expected == found:
        return
    if found is None:
        yield place, f"is missing{_text('; must be ', expected)}", True
    elif expected is None:
        yield place, f"was not rendered{_text(': ', found)}", False
    elif isinstance(expected, dict) and isinstance(found, dict):
        for key in dict.fromkeys((*expected, *found)):
            yield from _differences(expected.get(key), found.get(key), (*place, str(key)))
    elif isinstance(expected, list) and isinstance(found, list):
        if _are_named(expected) and _are_named(found):
            yield from _differences(_by_name(expected), _by_name(found), place)
        else:
            yield place, _list_difference(expected, found), True
    elif isinstance(expected, str) and isinstance(found, str) and "\n" in expected:
        yield place, _line_difference(expected, found), True
    else:
        yield place, f"is {found!r:.200}; must be {expected!r:.200}", True


def _are_named(items: list[Any]) -> bool:
    return all(isinstance(item, dict) for item in items)


def _by_name(items: list[dict[str, Any]]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for number, item in enumerate(items):
        name = next((str(item[key]) for key in _NAMES if key in item), str(number))
        if "mountPath" in item:  # one volume may be mounted at several places
            name = str(item["mountPath"])
        named[f"{name} (again, {number})" if name in named else name] = item
    return named


def _list_difference(expected: list[Any], found: list[Any]) -> str:
    wanted, there = (Counter(map(repr, items)) for items in (expected, found))
    lacking, more = wanted - there, there - wanted
    if not lacking and not more:
        return "is in another order"
    parts = [f"lacks {', '.join(lacking.elements())}"] if lacking else []
    parts += [f"has {', '.join(more.elements())}"] if more else []
    return f"{' and '.join(parts)}"


def _line_difference(expected: str, found: str) -> str:
    lines = enumerate(zip_longest(expected.splitlines(), found.splitlines()), 1)
    for number, (wanted, there) in lines:
        if wanted != there:
            return f"differs in line {number}: is {there!r:.200}; must be {wanted!r:.200}"
    return "ends with other line breaks"


def _text(before: str, value: Any) -> str:
    """A value that fits into a sentence; nothing for a larger one."""
    if isinstance(value, (Mapping, list)) or "\n" in str(value):
        return ""
    return f"{before}{value!r:.200}"
