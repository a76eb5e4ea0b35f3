"""The Triton model repository of a deployment: rendered, and moved into place."""

from __future__ import annotations

import filecmp
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tts.base import paths
from tts.base.errors import BuildError, ConfigError, ServerError
from tts.build.builder import require_current
from tts.build.spec import Deployment, Role

from .digest import code_of
from .model_configs import model_configs, write_grammar_tokenizer

CONFIG = "config.pbtxt"


def render_repository(deployment: Deployment, *, iteration_log: bool = False) -> Path:
    """Render the model repository of a deployment and return its folder.

    An unchanged repository is kept as it is. Raises ConfigError if there is nothing to serve, and
    BuildError if an engine is out of date (or, for target openvino, missing).
    """
    require_something(deployment)
    # TensorRT-LLM engines may be built on a machine other than this one
    if deployment.target == "openvino" or not missing_engines(deployment):
        require_current(deployment)
    write_grammar_tokenizer(deployment)
    configs = model_configs(deployment, iteration_log=iteration_log)
    target = paths.repository_dir(deployment.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rendering-", dir=target.parent) as temporary:
        rendered = Path(temporary) / "new"
        render_models(deployment, configs, rendered)
        if not _same(rendered, target):
            if target.exists():
                target.rename(Path(temporary) / "old")
            rendered.rename(target)
    return target


def require_something(deployment: Deployment) -> None:
    """Raise ConfigError for a deployment of which Triton would serve nothing."""
    if deployment.started() and not deployment.engines():
        raise ConfigError(
            f"The engines of {deployment.name!r} are servers of their own: there is no repository.",
            hint=f"Start them: tts serve {deployment.argument}",
        )
    if not deployment.engines():
        raise ConfigError(
            f"Deployment {deployment.name!r} has nothing to serve: both engines run already.",
            hint=f"Use it as it is: tts solve {deployment.argument} QUESTION; tts bench, "
            "tts gateway.",
        )


def render_models(deployment: Deployment, configs: Mapping[str, Any], target: Path) -> None:
    """Write every model of a deployment into a new folder: its configuration and its code."""
    for name, config in configs.items():
        (target / name / "1").mkdir(parents=True)  # Triton requires the folder, even empty
        if code := code_of(deployment, name):
            shutil.copyfile(code, target / name / "1" / code.name)
        text = text_format.MessageToString(config, as_utf8=True)
        (target / name / CONFIG).write_text(text, encoding="utf-8")


def missing_engines(deployment: Deployment) -> list[Role]:
    """The roles whose engines are not built on this machine."""
    folders = {role: paths.engine_dir(deployment.name, role) for role in deployment.engines()}
    return [role for role, folder in folders.items() if not (folder / "config.json").is_file()]


def require_engines(deployment: Deployment) -> None:
    """Raise BuildError naming the engines that are not built on this machine."""
    if missing := missing_engines(deployment):
        raise BuildError(
            f"Not built on this machine: {' and '.join(missing)} of {deployment.name!r}.",
            hint=f"Run: tts build-engines {deployment.argument}",
        )


def parse_config(file: Path) -> Any:
    """The ModelConfig protobuf of a config.pbtxt; raises ServerError naming model and line."""
    text = file.read_text(encoding="utf-8")
    try:
        return text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        line = error.GetLine() or 0
        content = text.splitlines()[line - 1].strip()[:100] if line else ""
        raise ServerError(
            f"{file.parent.name}/{CONFIG} is not a valid model configuration, line {line} "
            f"({content!r}): {error}"
        ) from error


def _same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files, __pycache__ aside."""

    def names(root: Path) -> list[Path]:
        relative = (path.relative_to(root) for path in root.rglob("*"))
        return sorted(path for path in relative if "__pycache__" not in path.parts)

    files = names(one)
    return (
        other.is_dir()
        and files == names(other)
        and all(
            (other / name).is_dir()
            if (one / name).is_dir()
            else filecmp.cmp(one / name, other / name, shallow=False)
            for name in files
        )
    )
