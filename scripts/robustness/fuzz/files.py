"""Mutations of a reader's valid file, each read within a time and a memory; what came out."""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tts.build.errors import TtsError

from .readers import Reader

Change = Callable[[bytes, random.Random], bytes]

# what a parser, a type check or an arithmetic may stumble on, as JSON and mostly YAML, too
VALUES = (
    "null", "true", "[]", "{}", '""', "0", "-1", "1.5", "1e999", "NaN", "-Infinity", "1" * 5000,
    str(2**31), str(2**63), str(10**15), str(10**400), '"\\ud800"', '"\\u0000"',
    '"../../etc/passwd"',
    '"~nobody-is-called-so/x"', '"' + "a" * 5000 + '"', "[" * 200 + "]" * 200, "[" * 100_000,
    '{"a": 1, "a": 2}', "[[[]]]", '[{"a": null}]', "2024-13-45", '"é\U0001f600"',
    "-0.0", "[1, 2, 3]",
)  # fmt: skip
TEXTS = (
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xff", b"\0", b"\r", b"\n", b"\t", b"{", b"}", b"[", b"]", b'"',
    b"\\", b"\\ud800", b":", b",", b"&a ", b"*a", b"<<: *a", b"!!int ", b"? ", b"- ", b"{{", b"}}",
    b"{%", b"%}", "\u2028".encode(), b"\x1b[31m", b"#", b"(a+)+$", b"(a|aa)+$", b"*", b"+",
    b"{1,99}", b"(?=", b")", b"{% for a in range(10**9) %}", b"{{ 'x' * 10**9 }}", b"|",
)  # fmt: skip


class TooLong(BaseException):
    """A file took more CPU time than it may; no `except Exception` swallows it."""


@dataclass(frozen=True)
class Failure:
    """A file that came out as neither a value nor a TtsError."""

    number: int
    content: bytes
    error: str
    """The traceback, or what bound was exceeded."""


@dataclass
class ReaderResult:
    """What came out of one reader's files."""

    read: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """How often, by type of error."""
    failures: list[Failure] = field(default_factory=list)
    most_cpu_s: float = 0.0


def fuzz_files(
    reader: Reader, files: int, seed: int, *, cpu_s: float = 10.0, keep: int = 20
) -> ReaderResult:
    """Read `files` mutations of a reader's valid file, each at most for `cpu_s` of CPU time.

    The memory is bounded by `memory_at_most`, if that is in force. Ends after `keep` failures.
    """
    outcome = ReaderResult()
    with tempfile.TemporaryDirectory(prefix="tts-fuzz-") as name:
        folder = Path(name)
        for beside in reader.beside:
            shutil.copy(beside, folder)
        for number in range(files):
            content = _file(reader, mutated(reader.valid, random.Random(f"{seed}/{number}")))
            (folder / reader.file).write_bytes(content)
            _read_one(reader, folder, number, content, cpu_s, outcome)
            if len(outcome.failures) >= keep:
                break
    return outcome


def _file(reader: Reader, part: bytes) -> bytes:
    return len(part).to_bytes(8, "little") + part + reader.data if reader.header else part


def _read_one(
    reader: Reader, folder: Path, number: int, content: bytes, cpu_s: float, outcome: ReaderResult
) -> None:
    began = _cpu_s()
    try:
        with _cpu_at_most(cpu_s):
            reader.read(folder)
        outcome.read += 1
    except TtsError as error:
        outcome.refused[type(error).__name__] += 1
        if len(str(error)) > 20_000:
            outcome.failures.append(Failure(number, content, f"{len(str(error))} characters"))
    except TooLong:
        outcome.failures.append(Failure(number, content, f"more than {cpu_s} s of CPU time"))
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic of a library in Rust is no Exception
        outcome.failures.append(Failure(number, content, traceback.format_exc()))
    outcome.most_cpu_s = max(outcome.most_cpu_s, _cpu_s() - began)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def _cpu_at_most(seconds: float) -> Iterator[None]:
    def stop(signum: int, frame: FrameType | None) -> None:
        raise TooLong

    before: Callable[[int, FrameType | None], object] | int | None
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def memory_at_most(more: int) -> Iterator[None]:
    """Let this process have `more` bytes of address space beyond what it has (Linux)."""
    statm = Path("/proc/self/statm")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if statm.exists():
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def mutated(valid: bytes, numbers: random.Random) -> bytes:
    """`valid` after one to three changes drawn from `numbers`."""
    for _ in range(numbers.choice((1, 1, 2, 3))):
        valid = numbers.choice(CHANGES)(valid, numbers)
    return valid


def _place(data: bytes, numbers: random.Random) -> int:
    return numbers.randrange(len(data) + 1)


def flip_a_bit(data: bytes, numbers: random.Random) -> bytes:
    """One bit is another."""
    if not data:
        return data
    place = numbers.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << numbers.randrange(8)]) + data[place + 1 :]


def insert_a_text(data: bytes, numbers: random.Random) -> bytes:
    """A text that readers stumble over is put in."""
    place = _place(data, numbers)
    return data[:place] + numbers.choice(TEXTS) + data[place:]


def cut_the_end(data: bytes, numbers: random.Random) -> bytes:
    """The file ends early."""
    return data[: _place(data, numbers)]


def drop_a_part(data: bytes, numbers: random.Random) -> bytes:
    """Some bytes are left out."""
    place = _place(data, numbers)
    return data[:place] + data[place + numbers.choice((1, 5, 100)) :]


def repeat_a_part(data: bytes, numbers: random.Random) -> bytes:
    """Some bytes come again, up to a thousand times."""
    place = _place(data, numbers)
    part = data[place : place + numbers.choice((1, 10, 200))]
    return data[:place] + part * numbers.choice((2, 3, 1000)) + data[place:]


def change_a_line(data: bytes, numbers: random.Random) -> bytes:
    """Drop a line, give it twice, or swap two."""
    lines = data.split(b"\n")
    one, other = numbers.randrange(len(lines)), numbers.randrange(len(lines))
    match numbers.randrange(3):
        case 0:
            del lines[one]
        case 1:
            lines.insert(other, lines[one])
        case _:
            lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def change_a_value(data: bytes, numbers: random.Random) -> bytes:
    """Another value behind a colon: what JSON and YAML have in common."""
    places = [place for place in range(len(data)) if data[place : place + 1] == b":"]
    if not places:
        return data
    start = numbers.choice(places) + 1
    end = start
    while end < len(data) and data[end : end + 1] not in (b",", b"}", b"]", b"\n"):
        end += 1
    return data[:start] + b" " + numbers.choice(VALUES).encode() + data[end:]


def change_a_json_value(data: bytes, numbers: random.Random) -> bytes:
    """Drop, replace, rename or nest a field somewhere in a JSON value."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return change_a_value(data, numbers)
    place = value
    mark = "\ue000"  # replaced in the text, as no Python value is written as 1e999
    for _ in range(numbers.randrange(4)):
        inner = list(place.values()) if isinstance(place, dict) else place
        if not isinstance(inner, list):
            break
        deeper = [part for part in inner if isinstance(part, (dict, list)) and part]
        if not deeper:
            break
        place = numbers.choice(deeper)
    if not isinstance(place, (dict, list)) or not place:
        return numbers.choice(VALUES).encode()
    key = numbers.choice(list(place) if isinstance(place, dict) else range(len(place)))
    match numbers.randrange(4):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict):
            place[f"{key}x"] = place.pop(key)
        case 2:
            place[key] = [place[key]]
        case _:
            place[key] = mark
    return json.dumps(value).replace(json.dumps(mark), numbers.choice(VALUES)).encode()


CHANGES: tuple[Change, ...] = (
    flip_a_bit,
    insert_a_text,
    cut_the_end,
    drop_a_part,
    repeat_a_part,
    change_a_line,
    change_a_value,
    change_a_json_value,
    change_a_json_value,
    change_a_json_value,
)
