"""What this process may use of its machine: cores and memory, or less by its control groups.

`root` holds proc and sys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_CGROUPS = Path("sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryLimit:
    """The memory that may be used."""

    size: int
    """Bytes."""
    of: str
    """Whose it is, as a sentence names it."""


def memory_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """The machine's memory, or a lower limit of a control group; None where neither is told."""
    total = _meminfo(root).get("MemTotal")
    machine = [MemoryLimit(total, "this machine's memory")] if total else []
    return min([*machine, *_groups(root)], key=lambda limit: limit.size, default=None)


def memory_available(root: Path = Path("/")) -> int | None:
    """Bytes that the machine could give now without swapping; None where it is not told."""
    return _meminfo(root).get("MemAvailable")


def _meminfo(root: Path) -> dict[str, int]:
    lines = (line.split() for line in _read_text(root / "proc/meminfo").splitlines())
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if words[2:] == ["kB"]}


def _groups(root: Path) -> Iterator[MemoryLimit]:
    for group, unified in _control_groups("memory", root):
        file = "memory.max" if unified else "memory.limit_in_bytes"
        text = _read_text(group / file).strip()
        if text.isdigit():  # "max": none
            yield MemoryLimit(int(text), "the memory limit of this process's control group")


def usable_cores(root: Path = Path("/")) -> int:
    """The cores that this process may run on, or as many as its control groups give it time for.

    A part of a core counts as none, but there is always one.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        allowed = os.cpu_count() or 1
    return max(1, int(min([allowed, *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Seconds of CPU time in each second."""
    for group, unified in _control_groups("cpu", root):
        if unified:
            words = _read_text(group / "cpu.max").split()
        else:
            files = (group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us")
            words = [_read_text(file).strip() for file in files]
        if len(words) == 2 and all(map(str.isdigit, words)):  # else "max" or -1: none
            yield int(words[0]) / int(words[1])


def _control_groups(controller: str, root: Path) -> Iterator[tuple[Path, bool]]:
    """The folder of each group around this process, and whether it is of version 2.

    A group's limit holds for the groups in it, so that all of them are to be asked; a container
    sees its own as the outermost.
    """
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", maxsplit=2)
        if not controllers:  # version 2: one tree for all controllers
            folder = root / _CGROUPS
        elif controller in controllers.split(","):
            folder = root / _CGROUPS / controller
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        for group in (inside, *inside.parents):
            yield folder / group, not controllers


def _read_text(file: Path) -> str:
    """A file of the kernel's; empty where it is not there."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
