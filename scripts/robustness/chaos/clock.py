"""A wall clock of the case's own, which can jump; the machine's stays as it is."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")


def build_clock(folder: Path) -> Path | None:
    """Compile the library to preload; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "clock.so"
    flags = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([compiler, *flags, str(_SOURCE), "-ldl", "-pthread"], check=True)
    return library


class Clock:
    """The wall clock of the processes that have `variables` in their environment."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self.variables = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(file)}
        self._off_s = 0
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Move it by some seconds, forward or back."""
        self._off_s += seconds
        # in place and at once, as it is mapped into running processes
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(handle, struct.pack("=q", self._off_s), 0)
        finally:
            os.close(handle)
