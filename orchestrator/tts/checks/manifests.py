"""The check of rendered manifests: rendered again, and compared line by line."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from difflib import ndiff
from pathlib import Path
from typing import Any

from tts.base.errors import CheckpointError
from tts.base.findings import Finding
from tts.base.input_files import Unreadable, read_text
from tts.base.yaml_text import parse_yaml
from tts.build.spec import Deployment
from tts.serving.repository.manifests import render_manifests

MAX_BYTES = 10_000_000
MOST_LINES = 20
"""Differing lines of a file that a finding shows."""
_WHY = "the server would run otherwise than the deployment says"
_FREE = (
    "PersistentVolumeClaim.spec.resources",
    "PersistentVolumeClaim.spec.storageClassName",
    "HorizontalPodAutoscaler.spec.maxReplicas",
    "Deployment.spec.template.spec.containers.triton.resources.requests",
    "Deployment.spec.template.spec.containers.gateway.image",
    "Deployment.spec.template.spec.containers.gateway.resources",
    "Deployment.spec.template.spec.initContainers.keys.image",
)
"""Fields that belong to the cluster."""


def check_manifests(deployment: Deployment, folder: Path) -> Iterator[Finding]:
    """The manifests in a folder against those that `tts render --manifests` would render."""
    command = f"tts render {deployment.argument} --manifests {shlex.quote(str(folder))}"
    fix = f"Render them again: {command}"
    with tempfile.TemporaryDirectory(prefix="tts-") as temporary, suppress(CheckpointError):
        # the check of the rendering reports a CheckpointError
        for expected in render_manifests(deployment, Path(temporary)):
            file = folder / expected.name
            try:
                changes = _changes(_lines_of(expected), _lines_of(file))
            except FileNotFoundError:
                yield Finding("is missing", str(file), _WHY, fix, "warning")
                continue
            except Unreadable as error:
                yield Finding(f"cannot be read: {error}", str(file), _WHY, fix)
                continue
            if changes:
                # something more than was rendered may be meant
                lacking = any(line.startswith("-") for line in changes)
                shown_changes = [*changes[:MOST_LINES], *(["..."] if changes[MOST_LINES:] else [])]
                what = "\n  ".join(["is not as rendered (-) but otherwise (+):", *shown_changes])
                yield Finding(what, str(file), _WHY, fix, "error" if lacking else "warning")


def _changes(expected: list[str], actual: list[str]) -> list[str]:
    return [line for line in ndiff(expected, actual) if line[0] in "-+"]


def _lines_of(file: Path) -> list[str]:
    """The lines of a script; of YAML one for each value, with the keys that lead to it."""
    text = read_text(file, MAX_BYTES)
    if file.suffix != ".yaml":
        return text.splitlines()
    documents = [parse_yaml(part) for part in re.split(r"^---$", text, flags=re.MULTILINE)]
    if not all(isinstance(document, dict) for document in documents):
        raise Unreadable("it holds something else than mappings")
    return [line for each in documents for line in _values(each, each.get("kind", ""))]


def _values(value: Any, place: str) -> Iterator[str]:
    if place in _FREE:
        return
    if isinstance(value, dict) and value:
        for key in sorted(value, key=str):
            yield from _values(value[key], f"{place}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        for item in value:
            name = item.get("name", "") if isinstance(item, dict) else ""
            yield from _values(item, f"{place}.{name}".rstrip("."))
    elif isinstance(value, str) and len(lines := value.splitlines()) > 1:
        yield from (f"{place}: {line!r}" for line in lines)
    else:
        yield f"{place}: {value!r}"
