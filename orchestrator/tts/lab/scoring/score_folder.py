"""The folder of a scoring: what was asked for, and each scored chain as soon as it is there.

| file | what |
|---|---|
| score.json | the verifier and the chains that it was asked about; written once |
| score-log.jsonl | scored chains in the order in which they came; never rewritten |
| scores.jsonl, scores.csv, scores.parquet | all of them in the input's order, at the end |
| best.jsonl | the best candidate of each problem, and the votes |
| run/ | the run that has made the chains, where a dataset is sampled |

The command that began it continues it: a chain that is in the log is not scored again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tts.base.errors import RunError
from tts.base.user_paths import is_there
from tts.runs.files import open_file, sync_folder
from tts.runs.folder import read_json, write_json, writing
from tts.session.scoring import SolutionScores

CONFIG = "score.json"
LOG = "score-log.jsonl"
RUN = "run"


class ScoredLine(msgspec.Struct, frozen=True):
    """A line of the log: a scored chain, and what its requests took."""

    name: str
    session: int
    """Number of the session that scored it, from 1 on."""
    seconds: float
    """Since that session sent its first request."""
    scored: SolutionScores


def begin(folder: Path, config: Mapping[str, Any]) -> None:
    """Write what is asked for, or check that the folder holds the same; raises RunError."""
    file = folder / CONFIG
    if not is_there(file):
        if is_there(folder / LOG):
            raise RunError(f"{folder} has a file {LOG} that is of no scoring.")
        with writing(folder):
            write_json(file, dict(config))
        return
    before = read_json(file, f"{folder} holds no scoring")
    for name, value in config.items():
        if before.get(name) != value:
            raise RunError(
                f"The scoring in {folder} cannot be continued: its {name} was "
                f"{before.get(name)!r:.200} and is now {value!r:.200}.",
                hint="Name another folder with --out.",
            )


def read_log(folder: Path) -> dict[str, ScoredLine]:
    """The scored chains by name; a last line cut short by a kill is left out. Raises RunError."""
    scored: dict[str, ScoredLine] = {}
    for number, line in enumerate(_lines(folder / LOG), 1):
        try:
            each = msgspec.json.decode(line, type=ScoredLine)
        except msgspec.MsgspecError as error:
            raise RunError(
                f"{folder / LOG}, line {number} is no scored chain: {error}.",
                hint="Take the line out: its chain is scored again.",
            ) from error
        scored.setdefault(each.name, each)
    return scored


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with open_file(file) as log:
            yield from (line for line in log if line.endswith(b"\n"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror or error}.") from error


class ScoreLog:
    """Appends scored chains to the log: whatever happens next, what was added is there."""

    def __init__(self, folder: Path, session: int) -> None:
        """`session` is its number; what a kill has left of a line is cut off."""
        self._folder, self._session = folder, session
        with writing(folder):
            self._file = open_file(folder / LOG, "a+b")
            self._file.truncate(sum(map(len, _lines(folder / LOG))))
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with writing(self._folder), self._file:
            os.fsync(self._file.fileno())
        sync_folder(self._folder)

    def add(self, name: str, scored: SolutionScores) -> ScoredLine:
        """Write a chain's line; raises RunError."""
        seconds = round(time.monotonic() - self._began, 3)
        line = ScoredLine(name, self._session, seconds, scored)
        with writing(self._folder):
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
        return line
