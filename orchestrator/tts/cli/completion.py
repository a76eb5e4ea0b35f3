"""What a shell completes: names and run folders. Each Tab is a new process, so imports are few.

A word that is a path is left to the shell, which completes files where nothing is offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tts.base.input_files import is_file
from tts.strategies.names import STRATEGY_NAMES

RUN_FILES = ("run.json", "group.json", "study.json")
"""Files by which a folder is known to be a run, a comparison or a study."""
DATASET_FILES = (".jsonl", ".csv", ".parquet")


def deployments(incomplete: str) -> list[str]:
    """Bundled deployments, and YAML files of the current folder."""
    from tts.base import paths

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
    from tts.datasets.known import KNOWN

    return _matching(incomplete, ["demo", *KNOWN, *_files(*DATASET_FILES)])


def runs(incomplete: str) -> list[str]:
    """Folders of runs, comparisons and studies, the newest first."""
    from tts.base import paths
    from tts.base.errors import TtsError

    places = [Path("runs")]
    with suppress(TtsError):  # TTS_HOME is no folder: the command itself says so
        places.append(_as_typed(paths.runs_dir()))
    folders = [run for place in dict.fromkeys(places) for run in _run_folders(place)]
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


def _run_folders(place: Path) -> list[Path]:
    found = [each for each in _listed(place) if any(is_file(each / name) for name in RUN_FILES)]
    return sorted(found, key=_changed, reverse=True)


def _changed(folder: Path) -> float:
    with suppress(OSError):  # it was removed just now
        return folder.stat().st_mtime
    return 0.0


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
