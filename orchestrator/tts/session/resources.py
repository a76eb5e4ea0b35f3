"""A run's use of the machine that it runs on, logged at intervals.

Energy is the consumption of NVIDIA GPUs, from NVML's counters; without the extra `energy` none is
logged. The counters cover whole GPUs of this machine: they include everything else that runs there,
and exclude servers elsewhere. NVML counts energy on GPUs of the Volta generation and later.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from tts.base.errors import RunError
from tts.runs.events import Resources
from tts.runs.log import RunLog

INTERVAL_S = 10.0
"""How much of a run that is killed may be missing."""


@asynccontextmanager
async def recorded_resources(log: RunLog) -> AsyncIterator[None]:
    """Log what the process has used since the start, every INTERVAL_S and at the end."""
    loop = asyncio.get_running_loop()
    with gpu_energy() as joules:
        began = time.process_time()

        def record() -> None:
            seconds = round(time.process_time() - began, 6)
            with suppress(RunError):  # a disk that is full: the run's next event says so
                log.write(Resources(t=log.clock(), cpu_s=seconds, energy_j=joules()))

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


@contextmanager
def gpu_energy() -> Iterator[Callable[[], dict[str, float]]]:
    """Return a function that gives the joules each GPU has consumed since this call, by number.

    It gives none if the package nvidia-ml-py, the driver, a GPU or the counter is missing.
    """
    nvml = _initialised()
    if nvml is None:
        yield dict
        return
    try:
        handles = _handles(nvml)
        before = _counters(nvml, handles)

        def consumed() -> dict[str, float]:
            now = _counters(nvml, handles)
            return {
                gpu: round((now[gpu] - start) / 1e3, 3)
                for gpu, start in before.items()
                if gpu in now
            }

        yield consumed
    finally:
        nvml.nvmlShutdown()


def _initialised() -> Any | None:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def _handles(nvml: Any) -> dict[str, Any]:
    try:
        count = nvml.nvmlDeviceGetCount()
        return {str(gpu): nvml.nvmlDeviceGetHandleByIndex(gpu) for gpu in range(count)}
    except nvml.NVMLError:
        return {}


def _counters(nvml: Any, handles: dict[str, Any]) -> dict[str, int]:
    """Millijoules since the driver was loaded, of the GPUs that count them."""
    counters = {}
    for gpu, handle in handles.items():
        try:
            counters[gpu] = int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        except nvml.NVMLError:
            continue
    return counters
