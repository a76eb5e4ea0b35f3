"""The page of a run, of a group of runs, or of several side by side: figures and facts.

The page of a run that goes on is written anew every few seconds (`tts report RUN --follow`).
"""

from __future__ import annotations

import json
import platform
import shlex
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from tts.base import paths
from tts.base.errors import RunError, TtsError
from tts.build.manifest import read_manifest
from tts.build.spec import load_deployment
from tts.reports.figures.charts import Cell, count_of, listed
from tts.reports.figures.comparison import comparison_figures
from tts.reports.figures.run import by_text, figures_of, right_share, warnings_of
from tts.runs.compare import Comparison, compare
from tts.runs.config import RunConfig, read_run_config
from tts.runs.events import SessionBegan
from tts.runs.folder import Json, has_begun, has_finished, is_worked_on
from tts.runs.groups import is_group, short_names, solved
from tts.runs.log import read_events
from tts.runs.rows import summary_of
from tts.runs.summary import read_summary
from tts.serving.repository.digest import deployment_digest

from .page import FILE, Facts, Progress, Report

EVERY_S = 5.0
"""Seconds between two pages, at least."""
_REST = 4.0
"""The pause behind a page, in times that it took: pages take a fifth of a core at most."""
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
    for name, values in zip(short_names(runs), each, strict=True):
        own = {key: value for key, value in values.items() if key not in shared}
        if own:
            facts[f"Run {name}"] = own
    facts["This page"] = {
        "written by": f"tts {version('tts-toolkit')}, Python {platform.python_version()}",
        "on": platform.platform(),
    }
    return facts


def _facts(run: Path) -> dict[str, Cell]:
    config = read_run_config(run)
    facts = {title: _cell(getattr(config, name)) for name, title in _PLAIN.items()}
    facts |= _models(config)
    facts |= _prefixed("", config.parameters)
    facts |= _prefixed("", msgspec.to_builtins(config.limits))
    for model, settings in config.prompting.items():
        facts |= _prefixed(f"{model}: ", settings)
    facts["problems"] = len(config.problem_ids)
    for role, remote in config.remotes.items():
        facts[f"{role}: runs at"] = ", ".join(remote.url)
        facts[f"{role}: server"] = "; ".join(remote.servers)
        facts[f"{role}: honours seeds"] = remote.reproducible
    if config.command:
        facts["command line"] = shlex.join(config.command)
    if command := command_of(config):
        facts["the same search again"] = command
    if has_finished(run):
        facts["digest of all trees"] = read_summary(run).tree_digest
    first = next(iter(read_events(run)), None)
    if isinstance(first, SessionBegan):
        facts["began"] = first.time
        facts |= _prefixed("run with: ", first.made_with)
    return facts


def command_of(config: RunConfig) -> str | None:
    """The command that asks for the same search: `tts bench` with all that decides its outcome.

    None of a run that no command line can ask for: a program's own problems or functions, a part of
    a run.
    """
    own = config.functions or config.sources or config.remotes or config.shard
    if own or config.keeps_problems or config.columns or config.answers or config.per_level:
        return None
    options: dict[str, Any] = {
        "dataset": config.dataset,
        "start": config.start,
        "limit": config.limit,
        "seed": config.seed,
        "dataset-seed": None if config.dataset_seed == config.seed else config.dataset_seed,
        "strategy": config.strategy,
        "schedule": config.schedule,
        "speculation": config.speculation,
        "in-flight": config.in_flight,
        "budget-tokens": config.limits.budget_tokens,
        "deadline": config.limits.deadline_s,
    }
    words = ["tts", "bench", config.deployment_source or config.deployment]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    for name, value in config.parameters.items():
        if value is not None:
            words += ["--set", f"{name}={json.dumps(value)}"]
    return shlex.join(words)


def _models(config: RunConfig) -> dict[str, Cell]:
    """The models of both engines, as the deployment's file has them; none if it has changed."""
    try:
        spec = load_deployment(config.deployment_source)
        if deployment_digest(spec) != config.deployment_digest:
            return {}
    except (TtsError, OSError):
        return {}
    facts: dict[str, Cell] = {"target": spec.target}
    for role, engine in spec.engines().items():
        facts[f"{role}: model"] = engine.checkpoint.name
        facts[f"{role}: precision"] = engine.precision
        if manifest := read_manifest(paths.engine_dir(spec.name, role)):
            versions = {k: v for k, v in manifest.settings.items() if k.endswith("_version")}
            facts |= _prefixed(f"{role}: ", versions)
    return facts


def _prefixed(prefix: str, settings: Json) -> dict[str, Cell]:
    return {f"{prefix}{name}": _cell(value) for name, value in settings.items()}


def _cell(value: Any) -> Cell:
    if value is None or isinstance(value, bool | int | float):
        return value
    return value if isinstance(value, str) and value.isprintable() else repr(value)


def report_of(folders: Sequence[Path]) -> Report:
    """The report of folders of runs and groups; raises RunError if one cannot be read."""
    return report_on(compare(folders))


def follow(folder: Path) -> Iterator[Path | RunError]:
    """Write the page of a run while a process works on it: each page, or why there is none yet.

    The first says how far the run is, and no more: the log of a large one takes long to read. A
    page that is there already stays until the next one is written.
    """
    page = folder / FILE
    is_running = is_worked_on(folder) and has_begun(folder) and not is_group(folder)
    if is_running and not page.exists():
        config = read_run_config(folder, going_on=True)
        now = "Its log is being read: figures and trees follow."
        progress = _progress(config, solved(folder), now)
        yield Report(page, _name(config), progress=progress).write()
    while is_worked_on(folder):
        began = time.monotonic()
        try:
            yield report_of([folder]).write()
        except RunError as error:  # it has not begun, or its files are being replaced
            yield error
        time.sleep(max(EVERY_S, _REST * (time.monotonic() - began)))


def report_on(comparison: Comparison) -> Report:
    """The report of runs that have been read.

    The page of one folder is in it; that of several is beside the first one, named after all of
    them.
    """
    if len(comparison.folders) == 1 and not comparison.unfinished:
        return _of_run(comparison)
    names = [folder.resolve().name for folder in comparison.folders]
    file = comparison.folders[0] / FILE
    if len(comparison.folders) > 1:
        file = (
            comparison.folders[0].resolve().with_name("-".join(["report", *names])[:100] + ".html")
        )
    runs = f"{len(comparison.runs)} runs" if len(comparison.runs) != 1 else "One finished run"
    folders = f"folder{'s' * (len(names) > 1)} {listed(names)}"
    warnings = [
        f" Warning of {whose}: {text.removeprefix('warning: ')}"
        for whose, text in by_text(
            (
                (name, text)
                for name, run in zip(comparison.names, comparison.runs, strict=True)
                for text in warnings_of(summary_of(run))
            ),
            len(comparison.runs),
        )
    ]
    compared = [run.folder for run in comparison.runs]
    return Report(
        file,
        _title(comparison),
        comparison_figures(comparison),
        compared,
        facts_of(compared),
        f"{runs} from the {folders}.{''.join(warnings)}",
    )


def _title(comparison: Comparison) -> str:
    """The strategies that are compared; where there is one, the runs' names."""
    strategies = list(dict.fromkeys(row.strategy for row in comparison.rows))
    deployments = listed(list(dict.fromkeys(run.config.deployment for run in comparison.runs)))
    names = comparison.names
    if len(strategies) != 1 or len(names) == 1:
        return f"{listed(strategies)} on {deployments}"
    return f"{listed(names)}: {strategies[0]} on {deployments}"


def _name(config: RunConfig) -> str:
    return f"{config.strategy} on {config.deployment}"


def _progress(config: RunConfig, solved: int, then: str) -> Progress:
    return Progress(solved, max(len(config.problem_ids), solved), then)


def _of_run(comparison: Comparison) -> Report:
    (run,), config, folder = comparison.runs, comparison.runs[0].config, comparison.runs[0].folder
    solved, progress = len(run.totals.problems), None
    if not has_finished(folder):
        then = (
            "The run goes on: load the page again for a newer one."
            if is_worked_on(folder)
            else "The run was interrupted."
        )
        progress = _progress(config, solved, then)
    right = f", {right_share(run)} right" if run.accuracy is not None else ""
    solved_ones = f"{count_of(solved, 'problem')} of {config.dataset}{right}"
    warnings = "".join(
        f" {each[0].upper()}{each[1:]}" for each in warnings_of(comparison.rows[0].summary)
    )
    return Report(
        folder / FILE,
        _name(config),
        figures_of(run),
        [folder],
        facts_of([folder]),
        f"{solved_ones}, in {folder.resolve().name}.{warnings}",
        progress=progress,
    )
