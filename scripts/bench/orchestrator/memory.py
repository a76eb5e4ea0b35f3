"""Whole runs on scripted engines: processor time per thought, and peak memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
"""Its number on Linux, see perf_event_open(2)."""
_HARDWARE, _INSTRUCTIONS = 0, 1
_ATTRIBUTE_BYTES = 128
_NOT_OF_KERNEL, _NOT_OF_HYPERVISOR = 1 << 5, 1 << 6


@contextlib.contextmanager
def counted() -> Iterator[Callable[[], int | None]]:
    """What gives the instructions so far, in user space; None where the machine does not say."""
    counter = _open_counter()
    try:
        yield lambda: None if counter is None else struct.unpack("Q", os.read(counter, 8))[0]
    finally:
        if counter is not None:
            os.close(counter)


def _open_counter() -> int | None:
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return None
    flags = _NOT_OF_KERNEL | _NOT_OF_HYPERVISOR
    head = struct.pack("IIQQQQQ", _HARDWARE, _ATTRIBUTE_BYTES, _INSTRUCTIONS, 0, 0, 0, flags)
    attribute = ctypes.create_string_buffer(head, _ATTRIBUTE_BYTES)
    this_thread, any_processor, no_group = 0, -1, -1
    opened = ctypes.CDLL(None).syscall(number, attribute, this_thread, any_processor, no_group, 0)
    return opened if opened >= 0 else None


@dataclass(frozen=True)
class Run:
    """One run in a folder, with its log and summary."""

    problems: int
    n: int
    thoughts: int
    cpu_s: float
    instructions: int | None
    """Instructions of its thread; None where the machine does not count them."""
    imported_mb: float
    """The peak before it: imports, and what a first small run makes once."""
    peak_mb: float
    log_mb: float


def run(problems: int, n: int) -> Run:
    """Beam search over made-up questions; to be called in a process of its own.

    A small run comes first, so that what a process does once is not counted.
    """
    from tts.session.event_loop import run_loop

    run_loop(_run(1, 4))
    return run_loop(_run(problems, n))


async def _run(problems: int, n: int) -> Run:
    from tts.build.spec import load_deployment
    from tts.build.tokenizer import Tokenizer
    from tts.session import AsyncSession

    from .scripted import scripted_engines

    encode = Tokenizer(load_deployment("demo").generator.tokenizer_folder).encode
    generator, verifier = scripted_engines(encode)
    questions = [(f"Compute {number} + 1.", str(number + 1)) for number in range(problems)]
    with tempfile.TemporaryDirectory() as folder, counted() as instructions:
        out = Path(folder, "run")
        imported, began, before, thoughts = peak_mb(), time.process_time(), instructions(), 0
        async with AsyncSession("demo", generator=generator, verifier=verifier) as session:
            async for result in session.solve_many(questions, n=n, out=out):
                thoughts += len(result.tree or ())
        spent, after = time.process_time() - began, instructions()
        executed = None if before is None or after is None else after - before
        log = (out / "events.jsonl").stat().st_size / 1e6
    return Run(problems, n, thoughts, spent, executed, imported, peak_mb(), log)


def peak_mb() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
