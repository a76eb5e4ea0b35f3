"""The run log: one append-only JSONL file per run, the single source of everything derived.

A run folder holds `run.json` (what was asked for, written once), `events.jsonl` (the log) and
`summary.json` (derived, at the end). Times are seconds since the session began (monotonic); a
resumed run has several sessions, each opened by a `session` event with the wall-clock time.
docs/run-log.md lists the events.

A folder with `group.json` holds several runs, a folder each (`group`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tts.build.errors import RunError

from . import events

Event = dict[str, Any]

EVENTS = "events.jsonl"
CONFIG = "run.json"
SUMMARY = "summary.json"
GROUP = "group.json"


def create_run(folder: Path, config: Event) -> None:
    """Make a run folder for `config`; it must not hold a run yet. Raises RunError."""
    create_folder(folder, CONFIG, config)


def create_folder(folder: Path, name: str, config: Event) -> None:
    """Make a folder that holds `config` as `name`, and no run or group before. Raises RunError."""
    if (folder / CONFIG).exists() or (folder / GROUP).exists():
        raise RunError(
            f"{folder} already holds a run.",
            hint=f"Continue it with --resume {folder}, or name another folder with --out.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / name, config)
    except OSError as error:
        raise cannot_write(folder, error) from error


def read_config(folder: Path) -> Event:
    """What a run was asked to do; raises RunError if the folder holds no run."""
    return read_json(folder / CONFIG, f"{folder} holds no run")


def read_summary(folder: Path) -> Event:
    """The summary of a finished run; raises RunError if it has not finished."""
    read_config(folder)
    return read_json(
        folder / SUMMARY,
        f"The run in {folder} has not finished; continue it with --resume {folder}",
    )


def write_summary(folder: Path, summary: Event) -> None:
    """Keep a finished run's summary; raises RunError."""
    try:
        write_json(folder / SUMMARY, summary)
    except OSError as error:
        raise cannot_write(folder, error) from error


def read_json(file: Path, otherwise: str) -> Event:
    """The object in a JSON file; raises RunError, with `otherwise` if there is no such file."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(f"{otherwise} ({file.name} is missing).") from error
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise RunError(f"{file} must hold a JSON object.")
    return data


def write_json(file: Path, data: Event) -> None:
    """Write a JSON file so that a reader sees the old or the new content, never half."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(file)


def read_events(folder: Path) -> Iterator[Event]:
    """All whole events of a run, oldest first; a last line cut short by a kill is left out."""
    file = folder / EVENTS
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise RunError(f"{file}, line {number} is not JSON: {error}") from error
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error}") from error


class RunLog:
    """Appends events; each is on its way to the disk when `write` returns or soon after.

    Lines go through a buffer that is flushed every FLUSH_S seconds and by `flush()`; so a killed
    process loses that much at most, and never half a run.
    """

    FLUSH_S = 0.2

    def __init__(self, folder: Path) -> None:
        """Open the log of `folder` for appending, cutting off a half-written last line."""
        self.folder = folder
        self._began = time.monotonic()
        self._flushed = self._began
        try:
            _cut_half_line(folder / EVENTS)
            self._file = (folder / EVENTS).open("ab")
        except OSError as error:
            raise cannot_write(folder, error) from error
        self.write(
            events.Session(t=0.0, time=datetime.now(UTC).isoformat(), version=events.VERSION)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def clock(self) -> float:
        """Seconds since this session began, to the microsecond."""
        return round(time.monotonic() - self._began, 6)

    def write(self, event: events.Event) -> None:
        """Append one event; raises RunError if the disk refuses."""
        now = time.monotonic()
        try:
            self._file.write(events.encode(event) + b"\n")
            if now - self._flushed > self.FLUSH_S:
                self._flush(now)
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        try:
            self._flush(time.monotonic())
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    def close(self) -> None:
        """Flush and close; a disk that is full by now has been reported before."""
        try:
            self._file.close()
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    def _flush(self, now: float) -> None:
        self._file.flush()
        self._flushed = now


def _cut_half_line(file: Path) -> None:
    if not file.exists():
        return
    with file.open("r+b") as log:
        content_end = log.seek(0, os.SEEK_END)
        position = content_end
        while position:
            step = min(4096, position)
            log.seek(position - step)
            newline = log.read(step).rfind(b"\n")
            if newline >= 0:
                position = position - step + newline + 1
                break
            position -= step
        if position != content_end:
            log.truncate(position)


def cannot_write(folder: Path, error: OSError) -> RunError:
    """What to tell the user when a run folder refuses to be written."""
    return RunError(
        f"The run folder {folder} cannot be written: {error.strerror or error}.",
        hint="Free some space or fix the permissions. What was saved stays; if the run had begun, "
        f"continue it with: tts bench --resume {folder}",
    )
