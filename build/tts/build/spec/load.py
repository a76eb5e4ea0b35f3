"""Finding deployment files and reading them."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from .. import paths
from ..errors import ConfigError
from ..input_files import Unreadable, is_file, read_text, require_path
from ..user_paths import is_folder, is_there
from ..yaml_text import parse_yaml
from .deployment import Deployment
from .engine import EngineSpec
from .mistakes import explain
from .verifier import checked_prompt

MAX_BYTES = 1_000_000
"""The largest deployment file that is read."""


def load_deployment(name_or_file: str | Path) -> Deployment:
    """Read a deployment by its file, or by its name when it is a bundled one.

    Checkpoint paths come back absolute. Raises ConfigError naming the field's path, its value and
    what is allowed.
    """
    file = deployment_file(name_or_file)
    try:
        text = read_text(file, MAX_BYTES)
    except (OSError, Unreadable) as error:
        raise ConfigError(f"Cannot read the deployment file {file}: {error}") from error
    try:
        data = parse_yaml(text)
    except Unreadable as error:
        raise ConfigError(f"{file} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file} must hold a mapping of fields, not {type(data).__name__}")
    try:
        deployment = Deployment.model_validate(data)
    except ValidationError as error:
        raise ConfigError(
            f"{file} is not a valid deployment:\n{explain(error, Deployment)}"
        ) from error
    deployment = _with_absolute_checkpoints(deployment, file.parent)
    deployment = _with_prompt(deployment, file.parent)
    return deployment.read_from(file, named=str(name_or_file))


def deployment_file(name_or_file: str | Path) -> Path:
    """The file of a deployment, given itself or by a bundled name; raises ConfigError if none."""
    try:
        require_path(str(name_or_file))
    except Unreadable as error:
        raise ConfigError(f"{str(name_or_file)!r:.100} names no deployment: {error}.") from error
    file = Path(name_or_file).expanduser()
    if is_file(file):
        return file.resolve()
    bundled = paths.deployments_dir() / f"{name_or_file}.yaml"
    if file.name == str(name_or_file) and is_file(bundled):
        return bundled
    if is_there(file):
        kind = "a folder" if is_folder(file) else "a pipe or a device"
        raise ConfigError(
            f"{file} is {kind}, not a deployment file.",
            hint="Name a YAML file; bundled deployments: "
            f"{', '.join(bundled_deployments()) or 'none'}.",
        )
    raise ConfigError(
        f"There is no deployment {str(name_or_file)!r}: neither a file nor a bundled name.",
        hint=f"Bundled deployments: {', '.join(bundled_deployments()) or 'none'}.",
    )


def bundled_deployments() -> list[str]:
    """Names of the deployments that come with the toolkit."""
    return sorted(file.stem for file in paths.deployments_dir().glob("*.yaml"))


def _with_prompt(deployment: Deployment, base: Path) -> Deployment:
    """The deployment with the text of its verifier's prompt file."""
    verifier = deployment.verifier
    if verifier.prompt_file is None:
        return deployment
    if verifier.prompt is not None:
        raise ConfigError("verifier.prompt and verifier.prompt_file are both given; remove one.")
    file = base / verifier.prompt_file.expanduser()
    try:
        prompt = checked_prompt(read_text(file, MAX_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"verifier.prompt_file: {file}: "
            + (error.strerror or str(error) if isinstance(error, OSError) else str(error))
            + ".",
            hint="docs/verifiers.md describes the file; engines/deployments/prompts/ has one.",
        ) from error
    update = {"prompt": prompt, "prompt_file": None}  # which is then all there is to know
    return deployment.model_copy(update={"verifier": verifier.model_copy(update=update)})


def _with_absolute_checkpoints(deployment: Deployment, base: Path) -> Deployment:
    def absolute(engine: EngineSpec) -> EngineSpec:
        try:
            checkpoint = (base / engine.checkpoint.expanduser()).resolve()
        except (OSError, RuntimeError) as error:  # a loop of symbolic links
            raise ConfigError(f"The checkpoint {engine.checkpoint} has no path: {error}") from error
        return engine.model_copy(update={"checkpoint": checkpoint})

    return deployment.model_copy(
        update={
            "generator": absolute(deployment.generator),
            "verifier": absolute(deployment.verifier),
        }
    )
