"""Rendering the Triton model repository of a deployment from the templates."""

from __future__ import annotations

import filecmp
import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jinja2
from google.protobuf import text_format
from markupsafe import Markup
from tritonclient.grpc import model_config_pb2

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.spec import Deployment, Role

from .probe import DIGEST

_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.md", ".*")
# what only the orchestrator uses, or where things lie: no reason to take a server for another one
_NOT_SERVED: dict[str, Any] = {
    "server": True,
    "generator": {"checkpoint", "in_flight_requests", "system_prompt", "step_delimiter"},
    "verifier": {"checkpoint", "in_flight_tokens", "format"},
}


def render_repository(deployment: Deployment, *, iteration_log: bool = False) -> Path:
    """Render the model repository of a deployment and return its folder.

    Every configuration is parsed back before the repository takes the place of the last one; an
    unchanged repository is kept as it is. Raises BuildError if an engine is missing or out of date,
    ServerError naming the template and line if a configuration is not valid.
    """
    values = template_values(deployment, iteration_log=iteration_log)
    target = paths.repository_dir(deployment.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rendering-", dir=target.parent) as temporary:
        rendered = Path(temporary) / "new"
        shutil.copytree(_templates(deployment), rendered, ignore=_SKIPPED)
        for template in sorted(rendered.rglob("*.j2")):
            _render(template, values)
        for config in sorted(rendered.glob("*/config.pbtxt")):
            stamp = f'key: "{DIGEST}" value {{ string_value: "{values[DIGEST]}" }}'
            with config.open("a", encoding="utf-8") as file:
                file.write(f"\nparameters {{ {stamp} }}\n")
            parse_config(config)
            (config.parent / "1").mkdir(exist_ok=True)  # Triton wants a version folder, even empty
        if not _same(rendered, target):
            if target.exists():
                target.rename(Path(temporary) / "old")
            rendered.rename(target)
    return target


def deployment_digest(deployment: Deployment) -> str:
    """SHA-256 over what defines the served models: engines, policies, templates.

    Addresses and what only the orchestrator reads are left out. Clients compare it with the
    parameter `deployment_digest` of a server's configurations.
    """
    digest = hashlib.sha256(
        json.dumps(deployment.model_dump(mode="json", exclude=_NOT_SERVED), sort_keys=True).encode()
    )
    files = [
        paths.engine_dir(deployment.name, role) / "manifest.json" for role in deployment.engines()
    ]
    templates = _templates(deployment)
    files += sorted(f for f in templates.rglob("*") if f.suffix in (".py", ".j2", ".pbtxt"))
    for file in files:
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def template_values(deployment: Deployment, *, iteration_log: bool) -> dict[str, Any]:
    """The variables of the templates (described in their README.md)."""
    configs = _engine_configs(deployment)
    return {
        "deployment": deployment,
        "generator": deployment.generator,
        "verifier": deployment.verifier,
        "engine_dir": {role: paths.engine_dir(deployment.name, role) for role in configs},
        "label_ids": configs["verifier"]["label_token_ids"],
        "iteration_log": iteration_log,
        DIGEST: deployment_digest(deployment),
    }


def parse_config(file: Path) -> Any:
    """The ModelConfig protobuf of a config.pbtxt; raises ServerError naming model and line."""
    text = file.read_text(encoding="utf-8")
    try:
        return text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        line = error.GetLine() or 0
        content = text.splitlines()[line - 1].strip() if line else ""
        raise ServerError(
            f"The rendered {file.parent.name}/config.pbtxt is not a valid model configuration, "
            f"line {line} ({content!r}): {error}",
            hint="The fault is in its template, config.pbtxt.j2.",
        ) from error


def _engine_configs(deployment: Deployment) -> dict[Role, dict[str, Any]]:
    raise NotImplementedError


def _templates(deployment: Deployment) -> Path:
    return paths.templates_dir() / deployment.target


def _render(template: Path, values: dict[str, Any]) -> None:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        finalize=_for_pbtxt,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    where = f"{template.parent.name}/{template.name}"
    try:
        text = environment.from_string(template.read_text(encoding="utf-8")).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise ServerError(f"Template {where}, line {error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise ServerError(f"Template {where} cannot be rendered: {error.message}") from error
    template.with_suffix("").write_text(text, encoding="utf-8")
    template.unlink()


def _for_pbtxt(value: Any) -> Any:
    """Protobuf text of a value inside or outside quotes; a path may hold any character."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Path) and not isinstance(value, Markup):
        return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def _same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files; what Python left there (__pycache__) aside."""

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
