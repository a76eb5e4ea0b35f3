"""The log of a run: one append-only JSONL file, the single source of everything derived.

`read_events` reads it; `RunLog` writes it. A line ends with the field `crc`: the CRC-32 of all
lines up to it, so that a changed digit is found, and a line that was dropped, moved or is there
twice. summary.json goes on with the chain, so that its `crc` stands for itself and for the log that
it was made from.

Times are seconds since the session began (monotonic); a resumed run has several sessions, each
opened by a `session` event with the wall-clock time. `events` has the events and their codec,
docs/reference/run-log.md says what they mean.
"""

from __future__ import annotations

import heapq
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import msgspec

from tts.base.errors import RunDamaged, RunError

from .events import (
    VERSION,
    AnyEvent,
    Event,
    Finished,
    Idle,
    RequestEnded,
    Resources,
    SessionBegan,
    StepScored,
    decode,
    encode,
)
from .files import open_file, replacing, sync_folder
from .folder import EVENTS, cannot_write, input_checksums, writing

CRC = "crc"
"""The field of a line, and of summary.json, that holds the checksum."""
_FIELD = b',"crc":"'
_TAIL = len(_FIELD) + len('01234567"}\n')


class ChecksumChain:
    """The checksum of a log's lines up to a place in it."""

    def __init__(self, crc: int = 0) -> None:
        """No line was written or read yet, or those with the checksum `crc`."""
        self._crc = crc

    def seal(self, event: bytes) -> bytes:
        """The next line: an event, encoded as a JSON object, with the checksum and the end."""
        body = event[:-1]
        self._crc = crc32(body, self._crc)
        return b'%b,"crc":"%08x"}\n' % (body, self._crc)

    def fits(self, line: bytes) -> bool:
        """Whether the next line, with its end, is the one that was written behind those before."""
        self._crc = crc32(line[:-_TAIL], self._crc)
        return line.endswith(b',"crc":"%08x"}\n' % self._crc)

    def sealed(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """A JSON object that is made of the lines so far, with the checksum of those and itself."""
        others = {name: value for name, value in data.items() if name != CRC}
        text = json.dumps(others, sort_keys=True, separators=(",", ":"))
        return {**others, CRC: f"{crc32(text.encode(), self._crc):08x}"}

    @classmethod
    def at_end(cls, log: Path) -> Self | None:
        """Behind the last line of a log, as that line states it; None if it does not end with one.
        An empty one if there is no log. Raises OSError.
        """
        try:
            with open_file(log) as lines:
                size = lines.seek(0, os.SEEK_END)
                if not size:
                    return cls()
                lines.seek(max(0, size - _TAIL))
                checksum = _checksum_in(lines.read(_TAIL))
        except FileNotFoundError:
            return cls()
        return None if checksum is None else cls(checksum)


def _checksum_in(tail: bytes) -> int | None:
    """The checksum at the end of a line; None if that is no end of a line."""
    if tail.startswith(_FIELD) and tail.endswith(b'"}\n'):
        with suppress(ValueError):
            return int(tail[len(_FIELD) : -3], 16)
    return None


def read_events(folder: Path) -> Iterator[AnyEvent]:
    """All whole events of a run, oldest first; a last line cut short by a kill is left out.

    Raises RunError for a log of another version, or one that cannot be read, and RunDamaged naming
    the line of what is no event, or another than was written there.
    """
    file = folder / EVENTS
    chain = ChecksumChain()
    try:
        with open_file(file) as log:
            for number, line in enumerate(iter(partial(log.readline, MAX_LINE_BYTES), b""), 1):
                if len(line) == MAX_LINE_BYTES:
                    raise RunError(
                        f"{file}, line {number} has {MAX_LINE_BYTES:,} bytes or more, and is no "
                        "event."
                    )
                if not line.endswith(b"\n"):
                    return
                yield _event(line, folder, number, chain)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror or error}") from error


def first_session(folder: Path) -> SessionBegan | None:
    """How a log begins; None if there is none, or if it does not begin with a session.

    Raises RunDamaged if its first line is damaged, and RunError as `read_events` does.
    """
    first = next(read_events(folder), None)
    return first if isinstance(first, SessionBegan) else None


def _event(line: bytes, folder: Path, number: int, chain: ChecksumChain) -> AnyEvent:
    """The event of the `number`th line of a log; `chain` has the checksum up to it."""
    fits = chain.fits(line)
    try:
        event = decode(line)
    except msgspec.ValidationError as error:
        what = f"is not an event that this version of tts knows: {error}"
        raise _damage(folder, number, what) from error
    except (ValueError, RecursionError) as error:
        raise _damage(folder, number, f"is not JSON: {error}") from error
    if isinstance(event, SessionBegan) and event.version != VERSION:
        raise RunError(
            f"{folder / EVENTS}, line {number}: the log has schema version {event.version}; this "
            f"version of tts reads version {VERSION} alone.",
            hint="Read or continue it with the version of tts that wrote it.",
        )
    if not fits:
        name = getattr(event, "problem", None)
        what = "does not match its checksum: it was changed or moved, or lines before it were "
        raise _damage(
            folder, number, (f"(problem {name!r:.80}) " if name else "") + f"{what}dropped."
        )
    return event


def _damage(folder: Path, number: int, what: str) -> RunDamaged:
    return RunDamaged(
        f"{folder / EVENTS}, line {number} {what}",
        hint="Cut the log off there and compute again what followed, keeping a copy of it: "
        f"tts bench --resume {folder} --repair (in Python: resume=True, repair=True). If "
        "another version of tts wrote the run, use that one.",
    )


MAX_LINE_BYTES = 100_000_000
"""A line of a log is shorter: far above any event, far below memory."""


class RunLog:
    """Appends events; each is on its way to the disk when `write` returns or soon after.

    Lines go through a buffer that is flushed every FLUSH_S seconds and by `flush()`: a process that
    is killed loses that much at most. A machine that goes down loses what was written since the
    last `sync()`.
    """

    FLUSH_S = 0.2

    def __init__(
        self,
        folder: Path,
        limits: tuple[int, int] | None = None,
        changed: Mapping[str, str] | None = None,
    ) -> None:
        """Open the log of `folder` for appending, cutting off a half-written last line.

        `limits` and `changed` are those of the `session` event, which is written first.
        """
        self.folder = folder
        self.began = time.monotonic()
        """When this session began, on the machine's monotonic clock."""
        self._flushed = 0.0
        with writing(folder):
            cut_half_line(folder / EVENTS)
            self._chain = ChecksumChain.at_end(folder / EVENTS) or ChecksumChain()
            files = input_checksums(folder)
            self._file = open_file(folder / EVENTS, "a+b")  # read where it has lost its name
            self._size = self._file.seek(0, os.SEEK_END)
            sync_folder(folder)
        self.time = datetime.now(UTC).isoformat()
        """The wall-clock time at which this session began, ISO 8601."""
        self.write(
            SessionBegan(
                t=self.clock(),
                time=self.time,
                version=VERSION,
                limits=limits,
                made_with=surroundings(),
                files=files,
                changed=dict(changed or {}),
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def clock(self) -> float:
        """Seconds since this session began, in whole microseconds: the clock of its events."""
        return round(1e6 * (time.monotonic() - self.began)) / 1e6  # a quarter of round(, 6)

    def write(self, event: Event) -> None:
        """Append one event as it is; raises RunError if the disk refuses."""
        try:
            line = self._chain.seal(encode(event))
            self._size += len(line)
            self._file.write(line)
            if event.t - self._flushed > self.FLUSH_S:
                self._flush()
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        with writing(self.folder):
            self._flush()

    def sync(self) -> None:
        """Bring everything written so far to the disk; returns when it is there.

        Raises RunError if the disk refuses, and RunDamaged if the log is no longer what was
        written: somebody removed or replaced the file, or wrote to it.
        """
        with writing(self.folder):
            self._flush()
            os.fsync(self._file.fileno())
            self._check_file()

    def close(self) -> None:
        """Flush and close; a disk that is full by now has been reported before."""
        with writing(self.folder):
            self._file.close()

    def _check_file(self) -> None:
        """Raise RunDamaged if the log is not the file that was written; a lost one is saved."""
        log, own = self.folder / EVENTS, os.fstat(self._file.fileno())
        hint = "Nothing but the run may write to its folder."
        with suppress(FileNotFoundError):
            there = log.lstat()
            if os.path.samestat(own, there):
                if there.st_size == self._size:
                    return
                raise RunDamaged(
                    f"The log {log} has {there.st_size:,} bytes instead of {self._size:,}: "
                    "something else cut it off or wrote to it while the run went on.",
                    hint=f"{hint} Continue with what is left: "
                    f"tts bench --resume {self.folder} --repair",
                )
        saved = log.with_name(f"{log.name}.saved")
        with replacing(saved) as copy:
            self._file.seek(0)
            shutil.copyfileobj(self._file, copy)
        raise RunDamaged(
            f"The log {log} was removed or replaced while the run went on. What it held is saved: "
            f"{saved}.",
            hint=f"{hint} Move that file to {log.name} and continue: "
            f"tts bench --resume {self.folder}",
        )

    def _flush(self) -> None:
        self._file.flush()
        self._flushed = self.clock()


def cut_half_line(file: Path) -> None:
    """Cut off what follows the last whole line of a file, if there is one; raises OSError."""
    if not file.exists():
        return
    with open_file(file, "r+b") as log:
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


def surroundings() -> dict[str, str]:
    """What a session runs with: versions of tts and Python, system, the machine's processors."""
    try:
        own = version_of("tts-toolkit")
    except PackageNotFoundError:  # a copy of the sources that nobody installed
        own = "unknown"
    return {
        "tts": own,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": f"{os.cpu_count()} x {_processor()}",
    }


def _processor() -> str:
    """The processor's name; its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


_TIMES = ("t", "sent", "done", "since", "until")


def write_merged(folder: Path, shards: Mapping[str, Path]) -> None:
    """Write the log of `folder` from those of finished shards, by name; raises RunError.

    Each event keeps its wall-clock time, by its machine's clock, so shards that ran side by side do
    so here. What says no server yet gets its shard's name as one.
    """
    sessions = {
        name: [event for event in read_events(path) if isinstance(event, SessionBegan)]
        for name, path in shards.items()
    }
    firsts = [of_shard[0] for of_shard in sessions.values() if of_shard]
    try:
        began = min(each.began for of_shard in sessions.values() for each in of_shard)
    except ValueError as error:  # also where no shard has a session
        raise RunDamaged(f"The logs of these shards have no beginning: {error}.") from error
    limits = [first.limits for first in firsts if first.limits]
    first = min(firsts, key=lambda session: session.began)
    total = sum(each[0] for each in limits), sum(each[1] for each in limits)
    by_source: dict[str, Resources] = {}
    last = 0.0
    chain = ChecksumChain()
    with writing(folder):
        first = msgspec.structs.replace(
            first,
            t=0.0,
            limits=total if limits else None,
            version=VERSION,
            files=input_checksums(folder),
            changed=dict(
                item for each in sessions.values() for s in each for item in s.changed.items()
            ),
        )
        with replacing(folder / EVENTS) as file:
            file.write(chain.seal(encode(first)))
            streams = [_on_one_clock(name, path, began) for name, path in shards.items()]
            for source, event in heapq.merge(*streams, key=lambda item: item[1].t):
                last = max(last, event.t)
                if isinstance(event, Finished):
                    continue
                if isinstance(event, Resources):
                    by_source[source] = event
                    event = _summed(event, by_source)
                file.write(chain.seal(encode(event)))
            file.write(chain.seal(encode(Finished(t=last))))


def _on_one_clock(name: str, path: Path, began: datetime) -> Iterator[tuple[str, Event]]:
    """A shard's events but its sessions, in seconds since `began`, each with its session's name."""
    offset = 0.0
    session = 0
    for event in read_events(path):
        if isinstance(event, SessionBegan):
            offset = (event.began - began).total_seconds()
            session += 1
            continue
        cached = isinstance(event, StepScored) and event.cached
        changes: dict[str, Any] = {
            field: round(getattr(event, field) + offset, 6)
            for field in (("t",) if cached else _TIMES)
            if hasattr(event, field)
        }
        if isinstance(event, RequestEnded | StepScored | Idle) and not (event.server or cached):
            changes["server"] = name
        yield f"{name}, session {session}", msgspec.structs.replace(event, **changes)


def _summed(last: Resources, by_source: Mapping[str, Resources]) -> Resources:
    """What processes have used by the time of `last` that each count for themselves."""
    return msgspec.structs.replace(
        last,
        cpu_s=round(sum(each.cpu_s for each in by_source.values()), 6),
        energy_j={
            f"{name}, GPU {gpu}": joules
            for name, each in by_source.items()
            for gpu, joules in each.energy_j.items()
        },
    )
