"""What a shell completes: names and run folders.

A word that is a path is left to the shell, which completes files where nothing is offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tts.base import paths
from tts.base.errors import TtsError
from tts.base.input_files import is_file
from tts.datasets.hub import KNOWN
from tts.runs.folder import CONFIG, GROUP, STUDY
from tts.strategies.names import STRATEGY_NAMES

DATASET_FILES = (".jsonl", ".csv", ".parquet")


def deployments(incomplete: str) -> list[str]:
    """Bundled deployments, and YAML files of the current folder."""
    bundled = (file.stem for file in paths.deployments_dir().glob("*.yaml"))
    return _matching(incomplete, [*sorted(bundled), *_files(".yaml", ".yml")])


def strategies(incomplete: str) -> list[str]:
    """The built-in strategies."""
    return _matching(incomplete, STRATEGY_NAMES)


def strategies_or_all(incomplete: str) -> list[str]:
    """The same, and the word for each in turn."""
    return _matching(incomplete, [*STRATEGY_NAMES, "all"])


def datasets(incomplete: str) -> list[str]:
    """The demo's problems, known datasets, and files of the current folder that may be one."""
    return _matching(incomplete, ["demo", *KNOWN, *_files(*DATASET_FILES)])


def runs(incomplete: str) -> list[str]:
    """Folders of runs, comparisons and studies, the newest first."""

    def holds_runs(folder: Path) -> bool:
        return any(is_file(folder / name) for name in (CONFIG, GROUP, STUDY))

    places = [Path("runs")]
    with suppress(TtsError):  # TTS_HOME is no folder: the command itself says so
        places.append(_as_typed(paths.runs_dir()))
    folders = [
        folder
        for place in dict.fromkeys(places)
        for folder in sorted(filter(holds_runs, _listed(place)), key=_changed, reverse=True)
    ]
    return _matching(incomplete, map(str, folders))


def _matching(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(*suffixes: str) -> list[str]:
    names = (file.name for file in _listed(Path()))
    return sorted(name for name in names if name.endswith(suffixes) and name[0] != ".")


def _as_typed(folder: Path) -> Path:
    """A folder as a path relative to the current one."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _changed(folder: Path) -> float:
    with suppress(OSError):  # it was removed just now
        return folder.stat().st_mtime
    return 0.0


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
