"""Checks of what was built: engines, model repository, manifests; where a server would listen."""

from __future__ import annotations

import errno
import re
import shlex
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from difflib import ndiff
from pathlib import Path
from typing import Any

from tts.base import paths
from tts.base.errors import BuildError, CheckpointError, ConfigError
from tts.base.findings import Finding
from tts.base.input_files import Unreadable, read_text
from tts.base.yaml_text import parse_yaml
from tts.build.builder import target_module
from tts.build.inputs import Inputs, verifier_identity
from tts.build.manifest import changed_content, inspect_engine, read_manifest
from tts.build.spec import Deployment, VerifierSpec
from tts.build.tensorrt.commands import expected_engine
from tts.build.tensorrt.engine_files import engine_problems
from tts.serving.command.ports import is_loopback
from tts.serving.repository.check import check_repository
from tts.serving.repository.manifests import render_manifests
from tts.serving.repository.model_configs import grammar_tokenizer_file, model_configs

from . import BEFORE_BUILD, Check, searches
from .findings import doubtful, no_file, no_folder, not_checked


def rendering(inputs: Inputs) -> Iterator[Finding]:
    """Check that a model repository can be rendered; that of target openvino needs its engines."""
    deployment = inputs.deployment
    if deployment.target != "tensorrt":
        return
    try:
        model_configs(deployment, inputs=inputs)
    except CheckpointError as error:
        if (deployment.verifier_model.tokenizer_folder / "tokenizer.json").is_file():
            return  # the check of the tokenizers reports it
        yield not_checked(
            f"the model repository. {error.message.removesuffix('.')}",
            "verifier.labels",
            "prm_score reads the logits at these ids",
            error.hint or "",
        )


def on_disk(inputs: Inputs) -> Iterator[Finding]:
    """The repository that lies there. Target openvino has it rendered again at each start."""
    if inputs.deployment.target != "tensorrt":
        return
    folder = paths.repository_dir(inputs.deployment.name)
    if what := no_folder(folder):
        fix = f"Remove it, then run: tts render {inputs.deployment.argument}"
        yield Finding(what, str(folder), "it is what a server loads", fix)
        return
    if not folder.is_dir():
        yield not_checked(
            "there is no model repository yet",
            str(folder),
            "it is what a server loads",
            f"Run: tts render {inputs.deployment.argument}",
        )
        return
    with suppress(CheckpointError):  # the check of the rendering reports it
        for finding in check_repository(folder, inputs.deployment):
            yield replace(finding, where=f"{folder.name}/{finding.where}")


def read_back(inputs: Inputs) -> Iterator[Finding]:
    """config.json of the built engines against the deployment."""
    for engine in inputs.with_shapes():
        role = engine.role
        folder = paths.engine_dir(inputs.deployment.name, role)
        if not (folder / "config.json").is_file():
            yield not_checked(
                "the engine is not built on this machine",
                str(folder),
                "the builder changes some settings with a warning only"
                if inputs.deployment.target == "tensorrt"
                else "its record says what is served",
                f"Run: tts build-engines {inputs.deployment.argument}",
            )
        elif inputs.deployment.target == "tensorrt":
            expected = expected_engine(engine.spec, engine.shape)
            why = "the server would be told one thing by the engine and another by config.pbtxt"
            fix = f"Build it again: tts build-engines {inputs.deployment.argument}"
            where = f"{folder}/config.json"
            try:
                for problem in engine_problems(folder, expected):
                    yield Finding(problem, where, why, fix)
            except BuildError as error:
                yield Finding(error.message.removesuffix("."), where, why, fix)


def current(inputs: Inputs) -> Iterator[Finding]:
    """Built engines against what a build would make now, by their manifests."""
    if not inputs.deployment.engines():
        return
    differing = {finding.where for finding in read_back(inputs)}
    target = target_module(inputs.deployment.target)
    for engine in inputs.with_shapes():
        folder = paths.engine_dir(inputs.deployment.name, engine.role)
        if differing & {str(folder), f"{folder}/config.json"}:
            continue  # `read_back` has reported it
        try:
            reasons = inspect_engine(folder, engine.folder, target.settings_for(engine)).reasons
        except (CheckpointError, ConfigError) as error:
            yield not_checked(
                f"whether the engine is of this checkpoint: {error.message.removesuffix('.')}",
                str(folder),
                "an engine of another checkpoint answers as well",
                error.hint or "Download the checkpoint.",
            )
            continue
        for reason in reasons:
            yield Finding(
                reason,
                str(folder),
                "what is served would not be what the deployment says",
                f"Run: tts build-engines {inputs.deployment.argument}",
            )


def contents(inputs: Inputs) -> Iterator[Finding]:
    """Every byte of the built engines, by the hashes in their manifests: it reads all of them."""
    for role in inputs.deployment.engines():
        folder = paths.engine_dir(inputs.deployment.name, role)
        if (manifest := read_manifest(folder)) is None:
            continue  # `read_back` or `current` has reported it
        try:
            changed = changed_content(folder, manifest)
        except OSError as error:
            yield Finding(
                f"cannot be read: {error}",
                str(folder),
                "a server that may not read it does not load it",
                "Give this user the right to read it, or check the disk.",
            )
            continue
        for name in changed:
            yield Finding(
                f"{name} is not the file that was built, by its hash",
                str(folder),
                "a damaged engine may load, and answer something else",
                f"Run: tts build-engines {inputs.deployment.argument} --force",
            )


def engine_files(inputs: Inputs) -> Iterator[Finding]:
    """The files of each built engine are files."""
    why = "the engine cannot be loaded"
    fix = f"Remove it, then run: tts build-engines {inputs.deployment.argument}"
    for role in inputs.deployment.engines():
        folder = paths.engine_dir(inputs.deployment.name, role)
        if what := no_folder(folder):
            yield Finding(what, str(folder), why, fix)
            continue
        manifest = read_manifest(folder)
        names = {"config.json", "manifest.json", *(manifest.engine_files if manifest else ())}
        for name in sorted(names):
            yield from no_file(folder / name, why, fix)


def tokenizer_file(inputs: Inputs) -> Iterator[Finding]:
    """The file from which TensorRT-LLM's backend reads the tokens' texts is beside the engine."""
    file = grammar_tokenizer_file(inputs.deployment)
    if file and (file.parent / "config.json").is_file() and not file.is_file():
        yield Finding(
            f"{file.name} is missing",
            str(file),
            "the generator's model names it, and does not load without it",
            f"Run: tts render {inputs.deployment.argument}",
        )


_CALIBRATION = "verifier.calibration"


def calibration(inputs: Inputs) -> Iterator[Finding]:
    """Model, format and template are those that the calibration was measured with."""
    deployment = inputs.deployment
    measured = deployment.verifier.calibration and deployment.verifier.calibration.measured
    if not measured or not measured.verifier:
        return
    again = f"Measure it again: tts score {deployment.argument} FILE --write"
    folder = paths.engine_dir(deployment.name, "verifier")
    if isinstance(deployment.verifier, VerifierSpec) and read_manifest(folder) is None:
        why = "a large checkpoint is hashed when its engine is built"
        yield not_checked(
            "the verifier is not built", _CALIBRATION, why, "Build it, and lint again."
        )
        return
    with suppress(CheckpointError, OSError):  # other checks report it
        for name, now in asdict(verifier_identity(deployment)).items():
            before = measured.verifier.get(name, now)
            if before != now:
                yield doubtful(
                    f"was measured on {measured.date} with another {name}, {before}; it is {now}",
                    _CALIBRATION,
                    "its probabilities are those of other scores",
                    again,
                )


_HOST = "server.host"
_LOOPBACK = "Use 127.0.0.1, which only this machine can reach."


def host(inputs: Inputs) -> Iterator[Finding]:
    """The server's host is an address of this machine, and open to others only knowingly."""
    spec = inputs.deployment.server
    if not inputs.deployment.engines():
        return  # nothing is started
    if problem := _unusable(spec.host):
        yield doubtful(  # the server may be meant for another machine
            f"is {spec.host!r}, {problem}",
            _HOST,
            "a server that is started here cannot listen there",
            _LOOPBACK,
        )
    elif not is_loopback(spec.host):
        yield doubtful(
            f"is {spec.host!r}, which opens the server to every machine that reaches this one",
            _HOST,
            "nobody is asked for a password: whoever connects can use the models and end the "
            "server (docs/explanation/security.md)",
            f"{_LOOPBACK} Others reach it through a tunnel (ssh -L), or in a network that you "
            "trust.",
        )


def _unusable(name: str) -> str | None:
    """Why no server on this machine can listen at a host; None if one can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:  # as Triton, IPv4 only
        try:
            bound.bind((name, 0))
        except socket.gaierror:
            return "a name that has no IPv4 address here"
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return "which is not an address of this machine"
            return f"at which nothing can listen: {error.strerror}"
    return None


MAX_MANIFEST_BYTES = 10_000_000
MOST_LINES = 20
"""Differing lines of a file that a finding shows."""
_WHY = "the server would run otherwise than the deployment says"
_CLUSTER_FIELDS = (
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
                difference = ndiff(_lines_of(expected), _lines_of(file))
                changes = [line for line in difference if line[0] in "-+"]
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


def _lines_of(file: Path) -> list[str]:
    """The lines of a script; of YAML one for each value, with the keys that lead to it."""
    text = read_text(file, MAX_MANIFEST_BYTES)
    if file.suffix != ".yaml":
        return text.splitlines()
    documents = [parse_yaml(part) for part in re.split(r"^---$", text, flags=re.MULTILINE)]
    if not all(isinstance(document, dict) for document in documents):
        raise Unreadable("it holds something else than mappings")
    return [line for each in documents for line in _values(each, each.get("kind", ""))]


def _values(value: Any, place: str) -> Iterator[str]:
    if place in _CLUSTER_FIELDS:
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


BEFORE_DEPLOY: Sequence[Check] = (*BEFORE_BUILD, rendering, read_back)
ALL: Sequence[Check] = (
    *BEFORE_DEPLOY,
    host,
    searches.strategies,
    engine_files,
    current,
    on_disk,
    tokenizer_file,
    calibration,
)
DEEP: Sequence[Check] = (*ALL, contents)
"""All checks, and the content of the engines, which takes as long as reading them."""
