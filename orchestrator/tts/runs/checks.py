"""Whether the parts of a run folder still belong together: every reader of one asks here first.

The log is the source. Each of its sessions names the checksums of run.json and problems.jsonl as
they were when it began; summary.json, which is derived from the log, names those of all files that
it stands beside. Contradictory parts are refused by name and never shown; a resumed run makes its
summary again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tts.build.errors import RunDamaged, RunError

from .checksums import of_file
from .durable import sync_folder
from .events import AnyEvent
from .folder import (
    CONFIG,
    ENGINE_STEPS,
    EVENTS,
    PROBLEMS,
    SUMMARY,
    Json,
    cannot_write,
    read_json,
    write_json,
)
from .folder import input_checksums as checksums_of_inputs
from .log import first_session, read_events
from .state import RunState, solved_problems

_FILES = "files"
"""The field of summary.json with the other files' checksums."""
_OWN_FILES = re.compile(
    rf"{re.escape(CONFIG)}|{re.escape(PROBLEMS)}|{re.escape(EVENTS)}|{ENGINE_STEPS}/\w+\.jsonl"
)
"""The names that it may have."""


def check_run(folder: Path) -> None:
    """Refuse a run folder, finished or not, whose parts contradict one another.

    Raises RunDamaged. A folder that holds no run is for its reader to refuse.
    """
    if (folder / SUMMARY).exists():
        read_summary_fields(folder)
    else:
        check_inputs(folder)


def check_inputs(folder: Path) -> None:
    """Raise RunDamaged if run.json or problems.jsonl is not what the run began with."""
    first = first_session(folder)
    if first is None or not first.files:
        return
    try:
        now = checksums_of_inputs(folder)
    except OSError as error:
        raise RunError(f"{folder} cannot be read: {error.strerror or error}") from error
    for name in (CONFIG, PROBLEMS):
        if name in first.files | now:
            _compare(folder, name, first.files.get(name), now.get(name), "when its log began")


def read_summary_fields(folder: Path) -> Json:
    """The fields of a finished run's summary.json; raises RunError if it has not finished.

    Raises RunDamaged if it, or a file that it was made from, is not as it was then.
    """
    config = read_json(folder / CONFIG, f"{folder} holds no run")
    file = folder / SUMMARY
    summary = read_json(
        file, f"The run in {folder} has not finished; continue it with --resume {folder}"
    )
    files = summary.pop(_FILES, None)
    check_inputs(folder)
    if not isinstance(files, dict):
        raise _stale(file, f"it does not say which {EVENTS} it was made from")
    for name, then in files.items():
        if not _OWN_FILES.fullmatch(name):
            raise _stale(file, f"`{_FILES}` names {name!r:.100}, which is no file of a run")
        now = _checksum(folder, name)
        if now is None and name.startswith(ENGINE_STEPS):
            continue  # nothing but figures is made of them, and without them these are left out
        if name == EVENTS and now is not None and now != then:
            for _ in read_events(folder):  # names the line
                pass
            raise _stale(file, f"{EVENTS} had {then} when it was written, and has {now}")
        _compare(folder, name, then, now, f"when {SUMMARY} was written")
    _refuse_incomplete(folder, summary, config)
    return summary


def check_lengths(folder: Path, summary: Json) -> None:
    """Refuse a summary beside files that are not as long as it says, which takes no reading.

    Raises RunDamaged. Files of equal length may still differ; `read_summary_fields` finds out.
    """
    files = summary.get(_FILES)
    for name, then in files.items() if isinstance(files, dict) else ():
        if name.startswith(ENGINE_STEPS) or not _OWN_FILES.fullmatch(name):
            continue
        try:
            now = f"{(folder / name).stat().st_size} bytes,"
        except OSError as error:
            raise RunDamaged(f"{folder / name} is missing: {error.strerror or error}.") from error
        if not str(then).startswith(now):
            raise RunDamaged(f"{folder / name} is not as long as {SUMMARY} says.")


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write a finished run's summary, with the checksums of its sources; raises RunError.

    The folder's files must be as they will stay.
    """
    try:
        names = [EVENTS, *sorted(checksums_of_inputs(folder))]
        names += [f"{ENGINE_STEPS}/{file.name}" for file in sorted(_engine_steps(folder))]
        files = {name: of_file(folder / name) for name in names if (folder / name).exists()}
        write_json(folder / SUMMARY, {**summary, _FILES: files})
    except OSError as error:
        raise cannot_write(folder, error) from error


def drop_stale_summary(folder: Path, say: Callable[[str], None]) -> None:
    """Remove the summary of a run that is continued if it does not fit the log; `say` why.

    Raises RunError where the log itself is gone or is another run's.
    """
    if not (folder / SUMMARY).exists():
        return
    if not (folder / EVENTS).exists():
        raise _gone(folder)
    check_inputs(folder)
    try:
        read_summary_fields(folder)
    except RunError as error:
        try:
            (folder / SUMMARY).unlink()
            sync_folder(folder)
        except OSError as failed:
            raise cannot_write(folder, failed) from failed
        say(f"{error.message} The log is the source: the summary is made from it again.")


def unsolved(problem_ids: Iterable[str], events: Iterable[AnyEvent]) -> list[str]:
    """The problems of a run that its log does not show as solved."""
    solved = {problem.id for problem in solved_problems(events, RunState(keeps_events=False))}
    return [name for name in problem_ids if name not in solved]


def check_complete(folder: Path, problem_ids: Iterable[str]) -> None:
    """Raise RunDamaged, naming them, if problems of a finished run are not solved in its log."""
    if missing := unsolved(problem_ids, read_events(folder)):
        named = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        raise RunDamaged(
            f"The run in {folder} counts as finished, but its log {EVENTS} lacks the solution of "
            f"{len(missing)} of its problems: {named}.",
            hint=f"Solve what is missing: tts bench --resume {folder}",
        )


def _checksum(folder: Path, name: Any) -> str | None:
    try:
        return of_file(folder / name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{folder / name} cannot be read: {error.strerror or error}") from error


def _compare(folder: Path, name: str, then: Any, now: str | None, when: str) -> None:
    if then == now:
        return
    if now is None:
        raise RunDamaged(
            f"{folder / name} is missing, and was there {when}.", hint="Bring the file back."
        )
    raise RunDamaged(
        f"{folder / name} is not the file that was there {when}"
        + (f": it had {then}, and has {now}." if then else "."),
        hint="Bring it back as it was: what was computed with it is not what it says now.",
    )


def _refuse_incomplete(folder: Path, summary: Json, config: Json) -> None:
    """Refuse a summary of fewer problems than the run has; which ones, the log tells."""
    match summary.get("problems"), config.get("problem_ids"):
        case int() as solved, [*names] if solved != len(names):
            check_complete(folder, map(str, names))


def _engine_steps(folder: Path) -> list[Path]:
    return list((folder / ENGINE_STEPS).glob("*.jsonl"))


def _gone(folder: Path) -> RunDamaged:
    return RunDamaged(
        f"The log of the run in {folder} is gone: {EVENTS} is missing, {SUMMARY} is there.",
        hint=f"Bring the log back. To solve all problems anew, remove {SUMMARY} first.",
    )


def _stale(file: Path, why: str) -> RunDamaged:
    return RunDamaged(
        f"{file} does not fit the run's log: {why}.",
        hint="It is made from the log again, and what the log lacks is computed, with: "
        f"tts bench --resume {file.parent}",
    )
