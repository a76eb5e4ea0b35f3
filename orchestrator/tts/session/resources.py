"""What a run takes of the machine it is run from, kept in its log now and then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tts.build.errors import RunError
from tts.runs.events import Resources
from tts.runs.log import RunLog

from .energy import gpu_energy

INTERVAL_S = 10.0
"""How much of a run that is killed may be missing."""


@asynccontextmanager
async def recorded_resources(log: RunLog) -> AsyncIterator[None]:
    """Write what the process has used since now into a log, every INTERVAL_S and at the end."""
    loop = asyncio.get_running_loop()
    with gpu_energy() as joules:
        began = time.process_time()

        def record() -> None:
            used = round(time.process_time() - began, 6)
            with suppress(RunError):  # a disk that is full: the run's next event says so
                log.write(Resources(t=log.clock(), cpu_s=used, energy_j=joules()))

        timer: asyncio.TimerHandle

        def wait() -> None:
            nonlocal timer
            timer = loop.call_later(INTERVAL_S, tick)

        def tick() -> None:
            record()
            wait()

        wait()
        try:
            yield
        finally:
            timer.cancel()
            record()
