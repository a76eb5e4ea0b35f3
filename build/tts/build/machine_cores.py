"""How many cores this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .control_groups import control_groups, read_text


def usable_cores(root: Path = Path("/")) -> int:
    """The cores that this process may run on, or as many as its control groups give it time for.

    A part of a core counts as none, but there is always one. `root` holds proc and sys.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        allowed = os.cpu_count() or 1
    return max(1, int(min([allowed, *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Seconds of CPU time in each second."""
    for group, unified in control_groups("cpu", root):
        if unified:
            words = read_text(group / "cpu.max").split()
        else:
            files = (group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us")
            words = [read_text(file).strip() for file in files]
        if len(words) == 2 and all(map(str.isdigit, words)):  # else "max" or -1: none
            yield int(words[0]) / int(words[1])
