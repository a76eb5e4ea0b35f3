"""Parts of several measurements: tables, spreads over rounds, processor time, the machine,
progress.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import psutil
from rich.table import Table


def table_of(title: str, *headings: str, left_aligned: Collection[str] = ()) -> Table:
    """A table of numbers: its columns are set to the right, but for those in `left_aligned`."""
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left_aligned else "right")
    return table


def spread_of(values: Sequence[float], digits: int) -> str:
    """The median over the rounds, and the range where there is one."""
    if not values:
        return ""
    middle, least, most = statistics.median(values), min(values), max(values)
    if least == most:
        return f"{middle:,.{digits}f}"
    return f"{middle:,.{digits}f} ({least:,.{digits}f} to {most:,.{digits}f})"


def family_of(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it has started."""
    return [process, *process.children(recursive=True)]


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """Processor seconds of these processes so far, in user and system mode."""
    seconds = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # ended since it was listed: its parent has them
            seconds += sum(process.cpu_times()[:2])
    return seconds


def machine() -> str:
    """What the numbers depend on: date, machine, versions, and what others take of it now."""
    cpu = platform.processor()
    if (info := Path("/proc/cpuinfo")).is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    versions = [
        f"{name} {importlib.metadata.version(name)}"
        for name in ("openvino-genai", "numpy")
        if find_spec(name.replace("-", "_"))
    ]
    return (
        f"{date.today()}, {cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{', '.join(versions)}, load average {os.getloadavg()[0]:.1f}"
    )


def say(line: str) -> None:
    """Progress."""
    print(f"[bench] {time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
