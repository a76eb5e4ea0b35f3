"""The Triton model repository of a deployment: rendered, parsed back, moved into place."""

from __future__ import annotations

import filecmp
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tts.build import paths
from tts.build.builder import require_current
from tts.build.errors import BuildError, ConfigError, ServerError
from tts.build.llmapi.target import llm_arguments, read_model
from tts.build.openvino.threads import threads_of
from tts.build.spec import Deployment, Role

from .digest import DIGEST, deployment_digest
from .guided import grammar_tokenizer_file, write_grammar_tokenizer
from .labels import label_biases, label_columns, label_token_ids
from .templates import CONFIG, TEMPLATE, carry, model_folders, render_template

_SKIPPED = shutil.ignore_patterns(TEMPLATE, "__pycache__", "*.pyc", "*.md", ".*")


def render_repository(deployment: Deployment, *, iteration_log: bool = False) -> Path:
    """Render the model repository of a deployment and return its folder.

    Every configuration is parsed back before the repository takes the place of the last one; an
    unchanged repository is kept as it is. Raises ConfigError if there is nothing to serve,
    BuildError if an engine is out of date (or, for target openvino, missing), ServerError naming
    the template and line if a configuration is not valid.
    """
    require_something(deployment)
    # TensorRT-LLM engines may be built on a machine other than this one
    if deployment.target == "openvino" or not missing_engines(deployment):
        require_current(deployment)
    write_grammar_tokenizer(deployment)
    values = template_values(deployment, iteration_log=iteration_log)
    target = paths.repository_dir(deployment.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rendering-", dir=target.parent) as temporary:
        rendered = Path(temporary) / "new"
        render_models(deployment, values, rendered)
        if not _same(rendered, target):
            if target.exists():
                target.rename(Path(temporary) / "old")
            rendered.rename(target)
    return target


def require_something(deployment: Deployment) -> None:
    """Raise ConfigError for a deployment of which Triton would serve nothing."""
    if not deployment.engines():
        raise ConfigError(
            f"Deployment {deployment.name!r} has nothing to serve: both engines run already.",
            hint=f"Use it as it is: tts solve {deployment.named} QUESTION; tts bench, tts gateway.",
        )


def render_models(deployment: Deployment, values: dict[str, Any], target: Path) -> None:
    """Render every model of a deployment into a new folder and parse it back."""
    for folder in model_folders(deployment):
        shutil.copytree(folder, target / folder.name, ignore=_SKIPPED)
        render_template(folder / TEMPLATE, target / folder.name / CONFIG, values)
    carry(deployment, target)
    for config in sorted(target.glob(f"*/{CONFIG}")):
        stamp = f'key: "{DIGEST}" value {{ string_value: "{values[DIGEST]}" }}'
        with config.open("a", encoding="utf-8") as file:
            file.write(f"\nparameters {{ {stamp} }}\n")
        parse_config(config)
        (config.parent / "1").mkdir(exist_ok=True)  # Triton requires a version folder, even empty


def missing_engines(deployment: Deployment) -> list[Role]:
    """The roles whose engines are not built on this machine."""
    folders = {role: paths.engine_dir(deployment.name, role) for role in deployment.engines()}
    return [role for role, folder in folders.items() if not (folder / "config.json").is_file()]


def require_engines(deployment: Deployment) -> None:
    """Raise BuildError naming the engines that are not built on this machine."""
    if missing := missing_engines(deployment):
        raise BuildError(
            f"Not built on this machine: {' and '.join(missing)} of {deployment.name!r}.",
            hint=f"Run: tts build-engines {deployment.named}",
        )


def iteration_logs(deployment: Deployment) -> dict[Role, Path]:
    """The files to which a server with `iteration_log` writes the iterations of its engines."""
    folder = paths.server_dir(deployment.name)
    return {role: folder / f"{role}-iterations.jsonl" for role in deployment.engines()}


def template_values(deployment: Deployment, *, iteration_log: bool) -> dict[str, Any]:
    """The variables of the templates (described in their README.md)."""
    specs = deployment.engines()
    engines = {role: paths.engine_dir(deployment.name, role) for role in specs}
    logs = iteration_logs(deployment)
    return {
        "generator": deployment.generator,
        "verifier": deployment.verifier,
        "checkpoints": {role: _quoted(spec.checkpoint) for role, spec in specs.items()},
        "grammar_tokenizer": _quoted(grammar_tokenizer_file(deployment) or ""),
        "engine_dirs": {role: _quoted(folder) for role, folder in engines.items()},
        "iteration_logs": {
            role: _quoted(file) if iteration_log else "" for role, file in logs.items()
        },
        "label_ids": label_columns(deployment),
        "label_biases": label_biases(deployment),
        DIGEST: deployment_digest(deployment),
        **({"threads": threads_of(deployment)} if deployment.target == "openvino" else {}),
        **(_llmapi_values(deployment) if deployment.target == "llmapi" else {}),
    }


def _llmapi_values(deployment: Deployment) -> dict[str, Any]:
    """What only the templates of target llmapi need, each by role."""
    engines = deployment.engines()
    arguments = {role: json.dumps(llm_arguments(spec)) for role, spec in engines.items()}
    labels = ",".join(map(str, label_token_ids(deployment)))
    return {
        "llm_args": {role: _quoted(text) for role, text in arguments.items()},
        "vocab_sizes": {role: read_model(s.checkpoint).vocab_size for role, s in engines.items()},
        "label_token_ids": {"generator": "", "verifier": labels},
    }


def parse_config(file: Path) -> Any:
    """The ModelConfig protobuf of a config.pbtxt; raises ServerError naming model and line."""
    text = file.read_text(encoding="utf-8")
    try:
        return text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        line = error.GetLine() or 0
        content = text.splitlines()[line - 1].strip()[:100] if line else ""
        raise ServerError(
            f"The rendered {file.parent.name}/config.pbtxt is not a valid model configuration, "
            f"line {line} ({content!r}): {error}",
            hint=f"The mistake is in its template, {TEMPLATE}.",
        ) from error


def _quoted(text: Path | str) -> str:
    """A path or a text escaped for a quoted string of protobuf text."""
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files, __pycache__ aside."""

    def names(root: Path) -> list[Path]:
        found = (path.relative_to(root) for path in root.rglob("*"))
        return sorted(path for path in found if "__pycache__" not in path.parts)

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
