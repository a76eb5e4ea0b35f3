"""Ways in which a run's folder gets damaged: by a disk, by a hand, by a command in the wrong place.

Each changes one thing in a folder, drawn from random numbers; `other` is another run's folder.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[Path, Path, random.Random], None]
_LOG = "events.jsonl"


def _file(folder: Path, numbers: random.Random) -> Path:
    """One of a folder's files, the log as often as all others."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.stat().st_size)
    logs = [file for file in files if file.name == _LOG]
    return numbers.choice(logs if logs and numbers.random() < 0.5 else files)


def _log(folder: Path, numbers: random.Random) -> Path:
    return numbers.choice(sorted(folder.rglob(_LOG)))


def flip_a_bit(folder: Path, other: Path, numbers: random.Random) -> None:
    """One bit of a file is another."""
    file = _file(folder, numbers)
    data = bytearray(file.read_bytes())
    data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
    file.write_bytes(data)


def change_a_digit(folder: Path, other: Path, numbers: random.Random) -> None:
    """One digit of a file is the next one."""
    _replace_one(_file(folder, numbers), rb"\d", lambda old: b"%d" % ((int(old) + 1) % 10), numbers)


def change_a_verdict(folder: Path, other: Path, numbers: random.Random) -> None:
    """A true becomes false, or the other way round."""
    others = {b"true": b"false", b"false": b"true"}
    _replace_one(_file(folder, numbers), rb"\b(true|false)\b", others.__getitem__, numbers)


def _replace_one(
    file: Path, pattern: bytes, new: Callable[[bytes], bytes], numbers: random.Random
) -> None:
    data = file.read_bytes()
    if found := list(re.finditer(pattern, data)):
        match = numbers.choice(found)
        file.write_bytes(data[: match.start()] + new(match[0]) + data[match.end() :])


def change_lines(folder: Path, other: Path, numbers: random.Random) -> None:
    """Drop a line of the log, give it twice, swap two, or take one of another run."""
    log = _log(folder, numbers)
    lines = log.read_bytes().splitlines(keepends=True)
    one, another = numbers.randrange(len(lines)), numbers.randrange(len(lines))
    match numbers.randrange(5):
        case 0:
            del lines[one]
        case 1:
            lines.insert(another, lines[one])
        case 2:
            lines[one], lines[another] = lines[another], lines[one]
        case 3:
            del lines[min(one, another) : max(one, another)]
        case _:
            lines[one] = numbers.choice((other / _LOG).read_bytes().splitlines(keepends=True))
    log.write_bytes(b"".join(lines))


def cut_the_log(folder: Path, other: Path, numbers: random.Random) -> None:
    """Anywhere, or behind a line."""
    log = _log(folder, numbers)
    data = log.read_bytes()[: numbers.randrange(log.stat().st_size)]
    log.write_bytes(data if numbers.random() < 0.5 else data[: data.rfind(b"\n") + 1])


def lose_problems(folder: Path, other: Path, numbers: random.Random) -> None:
    """Drop all that the log says of some problems; what is left may get right checksums again."""
    from tts.runs.checks import read_summary_fields, write_summary
    from tts.runs.checksums import Chain
    from tts.runs.events import decode, encode

    log = _log(folder, numbers)
    summary = read_summary_fields(log.parent)
    events = [decode(line) for line in log.read_bytes().splitlines()]
    names = sorted({event.problem for event in events if hasattr(event, "problem")})
    lost = numbers.sample(names, numbers.randint(1, len(names)))
    chain = Chain()
    kept = [event for event in events if getattr(event, "problem", None) not in lost]
    log.write_bytes(b"".join(chain.seal(encode(event)) for event in kept))
    if numbers.random() < 0.5:
        write_summary(log.parent, summary | {"problems": len(names) - len(lost)})


def edit_a_field(folder: Path, other: Path, numbers: random.Random) -> None:
    """Change, drop or add a field of a JSON file, as an editor would."""
    file = numbers.choice(sorted(folder.rglob("*.json")))
    data: dict[str, Any] = json.loads(file.read_bytes())
    name = numbers.choice(sorted(data))
    match numbers.randrange(4):
        case 0:
            del data[name]
        case 1:
            data[name] = numbers.choice((None, -1, 10**30, "x", [], {}, True, 0.5))
        case 2 if isinstance(data[name], int | float):
            data[name] = data[name] * 2 + 1
        case _:
            data[f"{name}x"] = data.pop(name)
    file.write_text(json.dumps(data, indent=2), "utf-8")


def take_anothers(folder: Path, other: Path, numbers: random.Random) -> None:
    """A file of another run in the place of this one's, as a file or a link."""
    names = [_LOG, "run.json", "summary.json"]
    file = numbers.choice(sorted(f for f in folder.rglob("*.json*") if f.name in names))
    file.unlink()
    if numbers.random() < 0.5:
        shutil.copyfile(other / file.name, file)
    else:
        file.symlink_to(other / file.name)


def take_away(folder: Path, other: Path, numbers: random.Random) -> None:
    """Remove a file, or put something there that is none."""
    file = _file(folder, numbers)
    match numbers.randrange(6):
        case 0:
            file.write_bytes(b"")
        case 1:
            file.unlink()
            file.mkdir()
        case 2:
            file.unlink()
            file.symlink_to(file.with_name("nothing"))
        case 3:
            file.unlink()
            os.mkfifo(file)
        case 4:
            file.chmod(0)
        case _:
            file.unlink()


def swap_runs(folder: Path, other: Path, numbers: random.Random) -> None:
    """Put two runs of a group in each other's place, or another run in that of one."""
    runs = sorted(file.parent for file in folder.glob("*/run.json"))
    if not runs:
        return
    one, another = numbers.sample(runs, 2)
    if numbers.random() < 0.5:
        shutil.rmtree(one)
        shutil.copytree(other, one)
    else:
        aside = one.rename(one.with_name("aside"))
        another.rename(one)
        aside.rename(another)


DAMAGES: tuple[Damage, ...] = (
    flip_a_bit,
    change_a_digit,
    change_a_digit,
    change_a_verdict,
    change_lines,
    change_lines,
    cut_the_log,
    lose_problems,
    edit_a_field,
    edit_a_field,
    take_anothers,
    take_away,
    swap_runs,
)
