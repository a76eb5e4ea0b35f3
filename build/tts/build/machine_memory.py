"""How much memory this machine, or the control group of this process, has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .control_groups import control_groups, read_text


@dataclass(frozen=True)
class MemoryLimit:
    """The memory that may be used."""

    size: int
    """Bytes."""
    of: str
    """Whose it is, as a sentence names it."""


def memory_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """The machine's memory, or a lower limit of a control group; None where it is not told.

    `root` holds proc and sys.
    """
    limits = [*_machine(root), *_groups(root)]
    return min(limits, key=lambda limit: limit.size, default=None)


def memory_available(root: Path = Path("/")) -> int | None:
    """Bytes that the machine could give now without swapping; None where it is not told."""
    return _meminfo(root).get("MemAvailable")


def _machine(root: Path) -> Iterator[MemoryLimit]:
    if total := _meminfo(root).get("MemTotal"):
        yield MemoryLimit(total, "this machine's memory")


def _meminfo(root: Path) -> dict[str, int]:
    lines = (line.split() for line in read_text(root / "proc/meminfo").splitlines())
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if words[2:] == ["kB"]}


def _groups(root: Path) -> Iterator[MemoryLimit]:
    for group, unified in control_groups("memory", root):
        file = "memory.max" if unified else "memory.limit_in_bytes"
        text = read_text(group / file).strip()
        if text.isdigit():  # "max": none
            yield MemoryLimit(int(text), "the memory limit of this process's control group")
