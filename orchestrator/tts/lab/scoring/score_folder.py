"""The folder of a scoring: the request, and each scored chain as soon as it is there.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    """Write the request, or check that the folder holds the same; raises RunError."""
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


@contextmanager
def appending(folder: Path, session: int) -> Iterator[Callable[[str, SolutionScores], ScoredLine]]:
    """A function that appends a chain to the log: whatever happens next, the chain is there.

    `session` is its number. What a kill has left of a line is cut off. Raises RunError.
    """
    with writing(folder):
        file = open_file(folder / LOG, "a+b")
        file.truncate(sum(map(len, _lines(folder / LOG))))
    began = time.monotonic()

    def append(name: str, scored: SolutionScores) -> ScoredLine:
        line = ScoredLine(name, session, round(time.monotonic() - began, 3), scored)
        with writing(folder):
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
        return line

    try:
        yield append
    finally:
        with writing(folder), file:
            os.fsync(file.fileno())
        sync_folder(folder)
