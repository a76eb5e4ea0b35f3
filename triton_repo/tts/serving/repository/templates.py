"""The templates of a model repository, and the modules that models of target llmapi carry."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.spec import Deployment
from tts.engines import wire
from tts.engines.llmapi import MODULES

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


_MODELS = (wire.GENERATOR, wire.PRM_ENGINE)


def carried_files(deployment: Deployment) -> dict[Path, Path]:
    """Path in the repository -> the toolkit's own file, for everything that models bring along."""
    if deployment.target != "llmapi":
        return {}
    sources = dict(_sources())
    return {Path(model, "1", path): file for model in _MODELS for path, file in sources.items()}


def carry(deployment: Deployment, repository: Path) -> None:
    """Copy the modules into a repository that is being rendered."""
    for path, source in carried_files(deployment).items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, repository / path)


def _sources() -> Iterator[tuple[Path, Path]]:
    """Each module's path below a folder on sys.path, and its file."""
    for name in MODULES:
        spec = importlib.util.find_spec(f"tts.{name}")
        assert spec is not None  # a test imports all of them
        assert spec.origin is not None
        file, folder = Path(spec.origin), Path("tts", *name.split("."))
        yield (
            (folder / file.name if spec.submodule_search_locations else folder.with_suffix(".py")),
            file,
        )
