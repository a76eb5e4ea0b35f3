"""Whole runs on scripted engines: processor time per thought, and peak memory."""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One run in a folder, with its log and summary."""

    problems: int
    n: int
    thoughts: int
    cpu_s: float
    imported_mb: float
    peak_mb: float
    log_mb: float


def run(problems: int, n: int) -> Run:
    """Beam search over made-up questions; to be called in a process of its own."""
    return asyncio.run(_run(problems, n))


async def _run(problems: int, n: int) -> Run:
    from tts.build.spec import load_deployment
    from tts.build.tokenizer import Tokenizer
    from tts.session import AsyncSession

    from .scripted import scripted_engines

    encode = Tokenizer(load_deployment("demo").generator.checkpoint).encode
    generator, verifier = scripted_engines(encode)
    questions = [(f"Compute {number} + 1.", str(number + 1)) for number in range(problems)]
    imported, began, thoughts = peak_mb(), time.process_time(), 0
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        async with AsyncSession("demo", generator=generator, verifier=verifier) as session:
            async for result in session.solve_many(questions, n=n, out=out):
                thoughts += len(result.tree)
        log = (out / "events.jsonl").stat().st_size / 1e6
    return Run(problems, n, thoughts, time.process_time() - began, imported, peak_mb(), log)


def peak_mb() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
