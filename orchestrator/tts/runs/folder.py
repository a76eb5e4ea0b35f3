"""The run folder: its files, and how it is made, read and written.

| file | what |
|---|---|
| run.json | what was asked for; written once |
| problems.jsonl | the problems, where a program gave them rather than a dataset |
| events.jsonl | the log (`log`, `events`) |
| summary.json | derived from the log when the run ends |
| answers.jsonl, answers.csv | the answers in it, as tables (`answers`) |
| engine-steps/ | what the engines did per step (`engine_steps`) |

A folder with `group.json` holds several runs, a folder each (`groups`); one with `study.json` holds
a study (`tts.lab.study.folder`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import msgspec
import psutil

from tts.base import paths
from tts.base.errors import RunError, WrongFolder, did_you_mean
from tts.base.input_files import Unreadable, parse_json
from tts.base.user_paths import is_folder, is_there
from tts.problem import Problem, Turn

from .files import make_folder, open_file, read_text, sync_folder, write_whole

Json = dict[str, Any]
"""A JSON object, as it is read and written."""

CONFIG = "run.json"
PROBLEMS = "problems.jsonl"
EVENTS = "events.jsonl"
SUMMARY = "summary.json"
GROUP = "group.json"
STUDY = "study.json"
ANSWERS = {"jsonl": "answers.jsonl", "csv": "answers.csv"}
"""The tables of answers by their kind."""
ENGINE_STEPS = "engine-steps"


def create_run(folder: Path, config: Json) -> None:
    """Make a run folder for `config`; it must not hold a run yet. Raises RunError."""
    create_folder(folder, CONFIG, config)


def create_folder(folder: Path, name: str, config: Json) -> None:
    """Make a folder that holds `config` as `name`, and no run or group before. Raises RunError."""
    refuse_begun(folder)
    with writing(folder):
        make_folder(folder)
        write_json(folder / name, config)


def refuse_begun(folder: Path, *, in_python: bool = False) -> None:
    """Raise RunError if a folder holds a run or a group already, or anything of other origin.

    `in_python`: a program asks. Hidden files, runs in folders of their own and the problems of one
    that did not begin may be there.
    """
    if is_there(folder / CONFIG) or is_there(folder / GROUP):
        raise WrongFolder(
            f"{folder} already holds a run.",
            hint=f"Continue it with solve_many(..., out={str(folder)!r}, resume=True), or give "
            "another folder as out."
            if in_python
            else f"Continue it with --resume {folder}, or name another folder with --out.",
        )
    with writing(folder):
        stranger = _stranger(folder) if is_folder(folder) else None
    if stranger:
        raise WrongFolder(
            f"{folder} is not empty: {stranger} belongs to no run.",
            hint="Give another folder as out." if in_python else "Name another folder with --out.",
        )


def _stranger(folder: Path) -> Path | None:
    """A file in a folder, or below it, that is of no run; raises OSError."""
    for each in sorted(folder.iterdir()):
        if each.name[0] == "." or each.name == PROBLEMS or has_begun(each):
            continue
        if each.is_symlink() or not is_folder(each):
            return each
        if stranger := _stranger(each):
            return stranger
    return None


def has_begun(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return is_there(folder / CONFIG)


def has_finished(folder: Path) -> bool:
    """Whether a folder holds a run that came to its end."""
    return is_there(folder / SUMMARY)


def drop_results(folder: Path) -> None:
    """Remove what a finished run has derived from its log, which does not fit; raises OSError."""
    for name in (SUMMARY, *ANSWERS.values()):
        (folder / name).unlink(missing_ok=True)
    sync_folder(folder)


def read_config(folder: Path) -> Json:
    """The configuration of a run; raises RunError if the folder holds no run."""
    if not is_there(folder):
        raise WrongFolder(
            f"There is no folder {folder}.",
            hint=did_you_mean(folder.name, (each.name for each in folder.parent.glob("*")))
            + f"tts runs list shows those in {paths.runs_dir()}.",
        )
    return read_json(folder / CONFIG, f"{folder} holds no run")


def input_checksums(folder: Path) -> dict[str, str]:
    """The checksums of the files that configure a run, by name; raises OSError."""
    return {
        name: _checksum(folder / name) for name in (CONFIG, PROBLEMS) if (folder / name).exists()
    }


def _checksum(file: Path) -> str:
    """The checksum of a file's content, with its length."""
    crc = length = 0
    with open_file(file) as content:
        while chunk := content.read(2**20):
            crc = crc32(chunk, crc)
            length += len(chunk)
    return f"{length} bytes, CRC-32 {crc:08x}"


class _ProblemRow(msgspec.Struct, omit_defaults=True):
    """A line of problems.jsonl."""

    id: str
    problem: str
    answer: str | None
    level: int | str | None
    history: tuple[Turn, ...] = ()
    chat_template_kwargs: dict[str, Any] = {}
    extra: dict[str, Any] = {}

    @property
    def as_problem(self) -> Problem:
        return Problem(*msgspec.structs.astuple(self))


def write_problems(folder: Path, problems: Iterable[Problem]) -> None:
    """Keep a run's problems where no dataset has them; raises RunError.

    Written as a dataset file: one JSON object a line. The answer is null without a reference.
    """
    rows = (
        _ProblemRow(
            p.id,
            p.question,
            p.answer,
            p.level,
            p.history,
            dict(p.chat_template_kwargs),
            dict(p.extra),
        )
        for p in problems
    )
    content = "".join(f"{json.dumps(msgspec.to_builtins(row))}\n" for row in rows)
    file = folder / PROBLEMS
    with writing(folder):
        if file.exists() and file.read_bytes() != content.encode():
            raise RunError(
                f"{file} holds other problems, and this run would write over it.",
                hint="Name another folder.",
            )
        write_whole(file, content)


def read_problems(folder: Path) -> list[Problem]:
    """The problems of a program's run, which no dataset has; raises RunError."""
    file = folder / PROBLEMS
    try:
        lines = read_text(file).splitlines()
        rows = [msgspec.convert(parse_json(line), _ProblemRow) for line in lines]
    except FileNotFoundError:
        rows = []
    except (OSError, Unreadable, msgspec.ValidationError) as error:
        raise RunError(
            f"{file} cannot be read as problems: {_why(error)}.",
            hint="Each line must be a JSON object with id, problem, answer and level.",
        ) from error
    if not rows:
        raise RunError(
            f"The run in {folder} does not hold its problems ({PROBLEMS} is missing).",
            hint="Bring that file back: no dataset has these problems.",
        )
    return [row.as_problem for row in rows]


def read_json(file: Path, otherwise: str) -> Json:
    """The object in a JSON file; raises RunError, with `otherwise` if there is no such file."""
    try:
        data = parse_json(read_text(file), strict=True)
    except FileNotFoundError as error:
        raise WrongFolder(f"{otherwise} ({file.name} is missing).") from error
    except (OSError, Unreadable) as error:
        if file.parent.is_file():
            raise WrongFolder(
                f"{otherwise}: {file.parent} is a file, and a run is a folder."
            ) from error
        raise RunError(
            f"{file} cannot be read: {_why(error)}.",
            hint="The file was damaged. Bring it back as it was, or name another folder.",
        ) from error
    if not isinstance(data, dict):
        raise RunError(f"{file} must hold a JSON object, not {type(data).__name__}.")
    return data


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def write_json(file: Path, data: Json) -> None:
    """Write a JSON file whole and durably (`files`); raises OSError."""
    write_whole(file, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def damaged(file: Path, why: object) -> RunError:
    """The error for a file, written once, whose content is wrong."""
    return RunError(
        f"{file} cannot be used: {why}.",
        hint="The file was damaged or changed, and a run is continued only as it was begun. Bring "
        "the file back as it was, or start a new run in another folder.",
    )


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Write to a run folder: what the system refuses becomes the RunError of `cannot_write`."""
    try:
        yield
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(folder: Path, error: OSError) -> RunError:
    """What to tell the user when a run folder refuses to be written."""
    if isinstance(error, NotADirectoryError | FileExistsError):
        return WrongFolder(
            f"The run folder {folder} cannot be written: {error.strerror or error}.",
            hint="It is a file, or a path below a file: name another folder.",
        )
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return RunError(
            f"The run folder {folder} cannot be used: {error.strerror}.",
            hint="If it is yours, put the file or folder itself there, or name where it leads.",
        )
    return RunError(
        f"The run folder {folder} cannot be written: {error.strerror or error}.",
        hint="Free some space or fix the permissions. Saved results are kept; if the run had "
        f"begun, continue it with: tts bench --resume {folder}",
    )


LOCK = ".lock"
_MOST_BYTES = 1000
"""Longest content of the lock's file that is read: it names a process."""
_HOLDER = re.compile(r"process (\d{1,9}) on (.+)")
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a folder to oneself; it is made if need be, and removed again if it stays empty.

    The kernel drops the lock when its process dies, however that comes. On NFS it holds between
    hosts too, if the mount passes locks on to its server; a file system without locks is used
    without one. Raises RunError naming the process that has the folder.
    """
    is_new = not is_folder(folder)
    with writing(folder):
        make_folder(folder)
        file = _locked_file(folder / LOCK)
    if file is None:
        raise _in_use(folder)
    with file:
        with suppress(OSError):  # on a full disk the folder is locked by somebody without a name
            file.truncate(0)
            name = f"process {os.getpid()} on {socket.gethostname()}"
            os.write(file.fileno(), name.encode())  # what a buffer kept would fail at the end
        try:
            yield
        finally:
            with suppress(OSError):  # a folder that was removed meanwhile, or is not empty
                (folder / LOCK).unlink()
                if is_new:
                    folder.rmdir()


def is_worked_on(folder: Path) -> bool:
    """Whether a process holds a run folder, as far as is visible without trying its lock.

    A process of another host cannot be checked, so it counts as alive.
    """
    try:
        holder = _HOLDER.fullmatch(read_text(folder / LOCK, _MOST_BYTES))
    except (OSError, Unreadable):
        return False
    if holder is None or holder[2] != socket.gethostname():
        return True
    return psutil.pid_exists(int(holder[1]))


def _locked_file(path: Path) -> BinaryIO | None:
    """The lock's file, locked; None if another process has it. Raises OSError."""
    while True:
        file = open_file(path, "ab")  # NFS grants an exclusive lock to writers only
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                file.close()
                raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                return file
        file.close()  # its last holder has just removed it: this lock would be nobody else's


def _in_use(folder: Path) -> RunError:
    holder = ""
    with suppress(OSError, Unreadable):
        holder = read_text(folder / LOCK, _MOST_BYTES)
    return RunError(
        f"The run folder {folder} is in use by {holder or 'another process'}.",
        hint="Wait until that has ended, or stop it with Ctrl-C there (or kill PID); it can be "
        "continued afterwards. Or name another folder.",
    )
