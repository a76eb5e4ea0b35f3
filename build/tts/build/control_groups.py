"""The control groups of this process, which may have less than the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CGROUPS = Path("sys/fs/cgroup")


def control_groups(controller: str, root: Path) -> Iterator[tuple[Path, bool]]:
    """The folder of each group around this process, and whether it is of version 2.

    `root` holds proc and sys. A group's limit holds for the groups in it, so that all of them are
    to be asked; a container sees its own as the outermost.
    """
    for line in read_text(root / "proc/self/cgroup").splitlines():
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


def read_text(file: Path) -> str:
    """A file of the kernel's; empty where it is not there."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
