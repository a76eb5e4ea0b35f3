"""One reader's files, each within a time and a memory; what came out."""

from __future__ import annotations

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

from .mutate import mutated
from .readers import Reader


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
class Outcome:
    """What came out of one reader's files."""

    read: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """How often, by type of error."""
    failures: list[Failure] = field(default_factory=list)
    most_cpu_s: float = 0.0


def fuzz(reader: Reader, files: int, seed: int, *, cpu_s: float = 10.0, keep: int = 20) -> Outcome:
    """Read `files` mutations of a reader's valid file, each at most for `cpu_s` of CPU time.

    The memory is bounded by `memory_at_most`, if that is in force. Ends after `keep` failures.
    """
    outcome = Outcome()
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
    reader: Reader, folder: Path, number: int, content: bytes, cpu_s: float, outcome: Outcome
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
