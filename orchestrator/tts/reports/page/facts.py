"""What a page says of runs beside its figures: configuration, dataset, digest, versions."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from tts.reports.figures.figure import Cell
from tts.runs.config import read_run_config
from tts.runs.events import Session
from tts.runs.folder import Json, has_finished
from tts.runs.log import read_events
from tts.runs.summary import read_summary

from .page import Facts

_PLAIN = {
    "deployment": "deployment",
    "deployment_source": "deployment file",
    "deployment_digest": "digest of the deployment",
    "dataset": "dataset",
    "seed": "seed",
    "strategy": "strategy",
    "vote": "vote",
    "schedule": "schedule",
    "speculation": "speculation",
    "in_flight": "problems at a time, at most",
    "context": "context of the generator, tokens",
}
"""Fields of a RunConfig, and how they are called on a page."""


def facts_of(runs: Sequence[Path]) -> Facts:
    """The facts of runs: what they share, what each has of its own, and what wrote the page.

    Raises RunError if a folder holds no run.
    """
    each = [_facts(run) for run in runs]
    shared = {
        name: value
        for name, value in (each[0] if each else {}).items()
        if all(other.get(name, ...) == value for other in each)
    }
    facts: dict[str, dict[str, Cell]] = {"Configuration": shared} if shared else {}
    for run, values in zip(runs, each, strict=True):
        own = {name: value for name, value in values.items() if name not in shared}
        if own:
            facts[f"Run {run.resolve().name}"] = own
    facts["This page"] = {
        "written by": f"tts {version('tts-toolkit')}, Python {platform.python_version()}",
        "on": platform.platform(),
    }
    return facts


def _facts(run: Path) -> dict[str, Cell]:
    config = read_run_config(run)
    known = {name: said for name, said in _PLAIN.items() if name not in config.unsaid}
    facts = {said: _cell(getattr(config, name)) for name, said in known.items()}
    facts |= _prefixed("", config.parameters)
    facts |= _prefixed("", msgspec.to_builtins(config.limits))
    for model, settings in config.prompting.items():
        facts |= _prefixed(f"{model}: ", settings)
    facts["problems"] = len(config.problem_ids)
    if config.replay:
        facts["replay of"] = _cell(config.replay.source)
    if has_finished(run):
        facts["digest of all trees"] = read_summary(run).tree_digest
    first = next(iter(read_events(run)), None)
    if isinstance(first, Session):
        facts["began"] = first.time
        facts |= _prefixed("run with: ", first.made_with)
    return facts


def _prefixed(prefix: str, settings: Json) -> dict[str, Cell]:
    return {f"{prefix}{name}": _cell(value) for name, value in settings.items()}


def _cell(value: Any) -> Cell:
    if value is None or isinstance(value, bool | int | float):
        return value
    return value if isinstance(value, str) and value.isprintable() else repr(value)
