"""Section `execution`: how programs run that execute what a model wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from .section import FilePath, Parallel, Section

SandboxName = Literal["bubblewrap", "none-i-trust-all-generated-code"]


class ExecutionSpec(Section):
    """How programs run that execute what a model wrote: commands that score, and the tests of code
    problems.
    """

    sandbox: SandboxName = "bubblewrap"
    """What keeps them from this machine's files and from the network. Without it they have your
    rights, and only the limits below (docs/explanation/security.md)."""
    cpu_s: Annotated[int, Field(strict=True, ge=1, le=10**6)] = 10
    """Processor seconds of each process."""
    wall_s: Annotated[float, Field(gt=0, le=1e6)] = 60.0
    """Seconds by the clock, against what hangs: a busy machine must not decide a score."""
    memory_mb: Annotated[int, Field(strict=True, ge=16, le=10**7)] = 1024
    """MiB of address space of each process, and of memory of all of them with their files."""
    processes: Annotated[int, Field(strict=True, ge=1, le=10**5)] = 32
    """Processes at a time; in the sandbox twice as many with their threads."""
    files_mb: Annotated[int, Field(strict=True, ge=1, le=10**6)] = 64
    """MiB of each file, and in the sandbox of all in `/tmp`, and of all in `/dev/shm`."""
    at_a_time: Parallel | None = None
    """Programs that run at a time; unset: one for each core."""
    reads: tuple[FilePath, ...] = ()
    """Files and folders that they may read besides the system's, this Python and the files that
    the command names. As root runs them as a user without rights, others must be able to read
    them."""

    def below(self, folder: Path) -> ExecutionSpec:
        """A copy with absolute paths; relative ones start at `folder`."""
        reads = tuple((folder / path.expanduser()).resolve() for path in self.reads)
        return self.model_copy(update={"reads": reads})
