"""Whether the parts of a run folder still belong together: every reader of one asks here first.

The log is the source. Its sessions name the checksums of run.json and problems.jsonl as they were
then; summary.json, which is derived from the log, goes on with the log's chain of checksums.
Contradictory parts are refused by name and never shown; a resumed run makes its summary again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tts.base.errors import RunDamaged, RunError

from .folder import (
    CONFIG,
    EVENTS,
    PROBLEMS,
    SUMMARY,
    Json,
    drop_results,
    input_checksums,
    read_config,
    read_json,
    write_json,
    writing,
)
from .log import CRC, ChecksumChain, first_session, read_events


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
        now = input_checksums(folder)
    except OSError as error:
        raise _cannot_read(folder, error) from error
    for name in (CONFIG, PROBLEMS):
        earlier, current = first.files.get(name), now.get(name)
        if earlier != current:
            raise RunDamaged(
                f"{folder / name} is not the file that was there when its log began: it had "
                f"{earlier or 'nothing'}, and has {current or 'nothing'}.",
                hint="Bring it back as it was: what was computed with it is not what it says now.",
            )


def read_summary_fields(folder: Path) -> Json:
    """The fields of a finished run's summary.json; raises RunError if it has not finished.

    Raises RunDamaged if it is not as it was written, or was made of another log. Of the log only
    the ends are read; damage within is found by whoever reads it.
    """
    config = read_config(folder)
    summary = read_json(
        folder / SUMMARY,
        f"The run in {folder} has not finished; continue it with --resume {folder}",
    )
    check_inputs(folder)
    try:
        if not (folder / EVENTS).exists():
            raise _gone(folder)
        end = ChecksumChain.at_end(folder / EVENTS)
    except OSError as error:
        raise _cannot_read(folder / EVENTS, error) from error
    if end is None or end.sealed(summary) != summary:
        for _ in read_events(folder):  # names the line, if one is damaged
            pass
        raise RunDamaged(
            f"{folder / SUMMARY} does not fit the run's log: either was changed since.",
            hint="It is made from the log again, and what the log lacks is computed, with: "
            f"tts bench --resume {folder}",
        )
    del summary[CRC]
    match summary.get("problems"), config.get("problem_ids"):
        case int() as solved, [*names] if solved < len(names):
            raise RunDamaged(
                f"The run in {folder} counts as finished, but its log {EVENTS} lacks the solution "
                f"of {len(names) - solved} of its problems.",
                hint=f"Solve what is missing: tts bench --resume {folder}",
            )
    return summary


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write a finished run's summary, which fits its log as it is now; raises RunError."""
    with writing(folder):
        end = ChecksumChain.at_end(folder / EVENTS) or ChecksumChain()
        write_json(folder / SUMMARY, end.sealed(summary))


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
        with writing(folder):
            drop_results(folder)
        say(f"{error.message} The log is the source: the summary is made from it again.")


def _cannot_read(file: Path, error: OSError) -> RunError:
    return RunError(f"{file} cannot be read: {error.strerror or error}")


def _gone(folder: Path) -> RunDamaged:
    return RunDamaged(
        f"The log of the run in {folder} is gone: {EVENTS} is missing, {SUMMARY} is there.",
        hint=f"Bring the log back. To solve all problems anew, remove {SUMMARY} first.",
    )
