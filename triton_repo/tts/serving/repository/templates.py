"""The templates of a model repository: the code of its models, and what is filled in."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from tts.base import paths
from tts.base.errors import ServerError
from tts.build.spec import Deployment

CONFIG = "config.pbtxt"


def code_of(deployment: Deployment, model: str) -> Path | None:
    """The code of a model: the target's own, or what targets share; None where a backend has it."""
    for part in (deployment.target, "common"):
        code = paths.templates_dir() / part / model / "1" / "model.py"
        if code.is_file():
            return code
    return None


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
