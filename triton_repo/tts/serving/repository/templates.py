"""The templates of a model repository: which of them a deployment has, and rendering one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.spec import Deployment

CONFIG = "config.pbtxt"
TEMPLATE = f"{CONFIG}.j2"


def model_folders(deployment: Deployment) -> list[Path]:
    """The folder of each model: those of every target, and those of this one."""
    root = paths.templates_dir()
    common, own = ((root / part).glob(f"*/{TEMPLATE}") for part in ("common", deployment.target))
    if not (engines := sorted(file.parent for file in own)):
        raise ServerError(f"There are no model templates for {deployment.target} in {root}.")
    return [*engines, *sorted(file.parent for file in common)]


def render_template(template: Path, file: Path, values: dict[str, Any]) -> None:
    """Render one template of the templates folder; raises ServerError naming it and the line."""
    root = paths.templates_dir()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(root),
        undefined=jinja2.StrictUndefined,
        finalize=_booleans,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    name = template.relative_to(root).as_posix()
    try:
        text = environment.get_template(name).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise ServerError(f"Template {error.name}, line {error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise ServerError(f"Template {name} cannot be rendered: {error.message}") from error
    file.write_text(text, encoding="utf-8")


def _booleans(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
