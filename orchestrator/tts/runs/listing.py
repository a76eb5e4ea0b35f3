"""The runs in a folder at a glance: `tts runs list`. No log of a finished run is read whole."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from tts.base.errors import RunDamaged, RunError, TtsError
from tts.base.user_paths import is_closed, is_folder, is_there

from .config import RunConfig, parse_config
from .files import open_file
from .folder import CONFIG, EVENTS, GROUP, SUMMARY, has_begun, has_finished, read_config
from .groups import is_group, read_group
from .lock import is_worked_on
from .log import first_session
from .summary import read_summary

State = Literal["finished", "interrupted", "running", "damaged"]
"""interrupted: not finished, and no process works on it."""

_SOLVED = re.compile(rb'"event": ?"problem_solved"')
"""Only events have it: within a text quotes are escaped."""


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A recorded run in a few words. For a damaged run, everything that cannot be read is null."""

    name: str
    """Its folder's name; of a run in a comparison behind that of the comparison's folder."""
    folder: str
    began: str | None
    """When it was started (ISO 8601, UTC)."""
    state: State
    deployment: str | None = None
    dataset: str | None = None
    strategy: str | None = None
    verifier: str | None = None
    """The function that scored, or the format of the deployment's verifier."""
    schedule: str | None = None
    n: int | None = None
    """Completions of a problem."""
    problems_done: int | None = None
    problems: int | None = None
    accuracy: float | None = None
    """Share of the judged problems that are right; null until the run has finished."""
    damage: str | None = None
    """Why the state is `damaged`."""


def list_runs(folder: Path) -> list[ListedRun]:
    """The runs in a folder, those of comparisons included, newest first.

    A folder that is a run, or a comparison, lists itself. Raises RunError if there is no folder.
    """
    if not is_folder(folder):
        raise RunError(
            f"There is no folder {folder}.", hint="Name a folder in which runs were recorded."
        )
    if _is_recorded(folder):
        runs = list(_listed(folder, folder.resolve().name))
    else:
        runs = [
            run
            for below in folder.iterdir()
            if not is_closed(below)
            for run in _listed(below, below.name)
        ]
    return sorted(runs, key=lambda run: (run.began or "", run.name), reverse=True)


def _is_recorded(folder: Path) -> bool:
    """Whether a folder holds a run or a comparison, or what is left of one."""
    return any(is_there(folder / name) for name in (CONFIG, GROUP, EVENTS, SUMMARY))


def _listed(folder: Path, name: str) -> Iterator[ListedRun]:
    try:
        if not (is_folder(folder) and _is_recorded(folder)):
            return
        if not is_group(folder):
            yield _run(folder, name)
            return
        members = [folder / member.folder for member in read_group(folder)[1]]
    except TtsError as error:
        yield _damaged(folder, name, error)
        return
    runs = [member for member in members if has_begun(member)]
    for member in runs:
        yield _run(member, f"{name}/{member.name}")
    if not runs:
        state: State = "running" if is_worked_on(folder) else "interrupted"
        yield ListedRun(name=name, folder=str(folder), began=_began(folder), state=state)


def _run(folder: Path, name: str) -> ListedRun:
    try:
        config = parse_config(read_config(folder), folder / CONFIG)
        finished = read_summary(folder) if has_finished(folder) else None
        began = _time_of(folder)
        problems = solved(folder) if finished is None else finished.problems
    except TtsError as error:
        return _damaged(folder, name, error)
    if finished:
        state: State = "finished"
    else:
        state = "running" if is_worked_on(folder) else "interrupted"
    return ListedRun(
        name=name,
        folder=str(folder),
        began=began,
        state=state,
        deployment=config.deployment,
        dataset=config.dataset,
        strategy=config.strategy,
        verifier=_verifier(config),
        schedule=config.schedule,
        n=_n(config),
        problems_done=min(problems, len(config.problem_ids)),
        problems=len(config.problem_ids),
        accuracy=finished.accuracy if finished else None,
    )


def _verifier(config: RunConfig) -> str | None:
    if source := config.sources.get("verifier"):
        return f"{Path(source.file).name}:{source.name}"
    return config.functions.get("verifier") or config.prompting.get("verifier", {}).get("format")


def solved(folder: Path) -> int:
    """Problems that a run's log shows as solved, counted without decoding its lines."""
    log = folder / EVENTS
    try:
        with open_file(log) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return sum(1 for _ in _SOLVED.finditer(text))
    except (FileNotFoundError, ValueError):  # there is none yet, or nothing in it
        return 0
    except OSError as error:
        raise RunError(f"{log} cannot be read: {error.strerror or error}.") from error


def _n(config: RunConfig) -> int | None:
    n = config.parameters.get("n")
    return n if isinstance(n, int) else None


def _damaged(folder: Path, name: str, error: TtsError) -> ListedRun:
    return ListedRun(
        name=name, folder=str(folder), began=_began(folder), state="damaged", damage=error.message
    )


def _time_of(folder: Path) -> str | None:
    """When the first session of a run began, by its log, or by run.json; raises RunError."""
    first = first_session(folder) if is_there(folder / EVENTS) else None
    if first is None:
        return _began(folder)
    try:
        return _iso(first.began)
    except ValueError as error:
        raise RunDamaged(f"{folder / EVENTS}: {error}.") from error


def _began(folder: Path) -> str | None:
    """When the file that is written first was written; None if there is none."""
    for name in (CONFIG, GROUP, EVENTS):
        with suppress(OSError, OverflowError, ValueError):
            return _iso(datetime.fromtimestamp((folder / name).lstat().st_mtime, UTC))
    return None


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")
