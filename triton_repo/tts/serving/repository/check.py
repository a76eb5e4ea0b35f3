"""Checking a model repository for NVIDIA GPUs: rendered again, compared, explained by facts."""

from __future__ import annotations

import filecmp
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from tts.base.errors import ServerError
from tts.base.findings import Finding
from tts.build.spec import Deployment
from tts.engines import wire

from ..contract import contract
from .model_configs import model_configs
from .render import CONFIG, parse_config, render_models

_PLACEHOLDER = re.compile(r"\$\{\w*\}?|\{\{|\{%")
_SCORE_MODEL = Path(wire.PRM_SCORE, "1", "model.py")
_PYTHON_CACHE = "__pycache__"  # Python writes it beside what it has run
_WHY = {
    "name": "Triton refuses a model whose name is not its folder's, and clients ask for it by name",
    "backend": "the backend decides what runs the model",
    "platform": "an ensemble is told by its platform",
    "max_batch_size": "tensors on the wire have a batch dimension, up to the engine's batch size",
    "model_transaction_policy": "the client streams to engines that write, and calls others once; "
    "each kind of call is refused by a model of the other policy",
    "dynamic_batching": "a wait or a limit in Triton's queue comes on top of the engine's own",
    "instance_group": "there is one instance per replica, and one set of gpu_device_ids for each",
    "input": "a tensor that is not the contract's is refused, or read as something else",
    "output": "a tensor that is not the contract's is not answered, or read as something else",
    "ensemble_scheduling": "scores pass from the engine to prm_score by these names",
    "version_policy": "only version 1 is rendered",
}
_NOT_ASKED_FOR = "the deployment does not ask for it, and it may change how the model is served"


def check_repository(folder: Path, deployment: Deployment) -> list[Finding]:
    """Everything in a model repository that is not as it would be rendered now.

    For target tensorrt. Reads files only, and renders into a temporary folder. Raises
    CheckpointError if the ids of the verifier's labels cannot be known.
    """
    fix = f"Render it again: tts render {deployment.argument}"
    with tempfile.TemporaryDirectory(prefix="tts-") as temporary:
        rendered = Path(temporary) / "models"
        render_models(deployment, model_configs(deployment), rendered)
        return [
            Finding(what, where, why, fix)
            for where, what, why in (
                *_files(folder, rendered),
                *(each for model in _models(rendered) for each in _config(folder, model, rendered)),
            )
        ]


Mismatch = tuple[str, str, str]  # where, what, why


def _models(repository: Path) -> list[str]:
    return sorted(path.name for path in repository.iterdir())


def _files(folder: Path, rendered: Path) -> Iterator[Mismatch]:
    expected = {path.relative_to(rendered): path for path in rendered.rglob("*")}
    there = {path.relative_to(folder) for path in folder.rglob("*")} if folder.is_dir() else set()
    caches = {path.parent / _PYTHON_CACHE for path in expected if path.suffix == ".py"}
    there = {path for path in there if caches.isdisjoint((path, *path.parents))}
    for path in sorted(expected.keys() - there):
        yield str(path), "is missing", "Triton does not load a model without it"
    for path in sorted(there - expected.keys()):
        yield str(path), "does not belong there", "Triton serves every model and version it finds"
    for path in sorted(there & expected.keys()):
        source, file = expected[path], folder / path
        if file.is_dir() != source.is_dir():
            what = "is a file, not a folder" if source.is_dir() else "is a folder, not a file"
            yield str(path), what, "Triton does not load the model"
        elif path.name != CONFIG and file.is_file() and not filecmp.cmp(source, file, False):
            why = "it makes the scores" if path == _SCORE_MODEL else "the model runs it"
            yield str(path), "is not the one that comes with the toolkit", why


def _config(folder: Path, model: str, rendered: Path) -> Iterator[Mismatch]:
    """The mistakes in one configuration."""
    file = folder / model / CONFIG
    if not file.is_file():
        return  # reported by _files
    where = f"{model}/{CONFIG}"
    expected = _plain(parse_config(rendered / model / CONFIG))
    try:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if match := _PLACEHOLDER.search(line):
                why = "a placeholder reaches the backend as it is, which then takes a default"
                yield f"{where}:{number}", f"{match[0]!r} was not filled in", why
        actual = _plain(parse_config(file))
    except (ServerError, UnicodeDecodeError) as error:
        what = error.message if isinstance(error, ServerError) else str(error)
        yield where, what, "Triton cannot read it"
        return
    yield from _parameters(where, expected.pop("parameters"), actual.pop("parameters", {}))
    for path, value, is_there in _differences(expected, actual, ()):
        yield f"{where}: {'.'.join(path)}", _compared(value, is_there), _reason(path, value)


def _parameters(where: str, expected: dict[str, str], actual: dict[str, str]) -> Iterator[Mismatch]:
    for key in sorted(expected.keys() | actual.keys()):
        fact = contract().parameter(key)
        why = fact.why if fact else _NOT_ASKED_FOR if key not in expected else "the models read it"
        value, is_there = expected.get(key), actual.get(key)
        place = f"{where}: parameters.{key}"
        if fact and value is not None and is_there is not None:
            try:
                value, is_there = (contract().canonical(fact, text) for text in (value, is_there))
            except ValueError as error:
                yield place, f"is {is_there!r}: {error}", why
                continue
        if value != is_there:
            yield place, _compared(value, is_there), why


def _plain(config: Any) -> dict[str, Any]:
    """A configuration as plain data; items of lists that have a name are keyed by it."""
    data = json_format.MessageToDict(config, preserving_proto_field_name=True)
    parameters = {
        key: value.get("string_value", "") for key, value in data.get("parameters", {}).items()
    }
    by_name: dict[str, Any] = _by_name(data)
    return {**by_name, "parameters": parameters}


def _by_name(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _by_name(item) for key, item in value.items()}
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return value
    by_name: dict[str, Any] = {}
    for number, item in enumerate(value):
        name = str(item.get("name") or item.get("model_name") or number)
        by_name[f"{name} (again, {number})" if name in by_name else name] = _by_name(item)
    return by_name


def _differences(
    expected: Any, actual: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            yield from _differences(expected.get(key), actual.get(key), (*path, key))
    elif expected != actual:
        yield path, expected, actual


def _compared(expected: Any, actual: Any) -> str:
    if actual is None:
        return "is missing" if isinstance(expected, dict) else f"is missing; must be {expected!r}"
    if expected is None:
        return "does not belong there"
    return f"is {actual!r}; must be {expected!r}"


def _reason(path: tuple[str, ...], expected: Any) -> str:
    return _NOT_ASKED_FOR if expected is None else _WHY.get(path[0], _NOT_ASKED_FOR)
