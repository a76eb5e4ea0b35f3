"""What a program that executes a model's code sees and may use; runs it, and says how it ended.

bubblewrap gives it a root of its own: the system's folders, this Python and what it is given to
read, none of them to be written; a temporary folder in memory; no network, and no process but its
own. `inside` is its parent there. Without bubblewrap a program has the user's rights, a temporary
folder to start in, and the limits of `inside`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from tts.base.errors import ConfigError
from tts.base.machine_limits import usable_cores

from ..spec.text_verifier import ExecutionSpec
from . import inside
from .bubblewrap import WORK, bare, beside_python, find_bubblewrap, wrapped

MAX_OUTPUT_BYTES = 1 << 16
_KEPT_ERRORS = 2000  # bytes at the end of the standard error
_CHUNK_BYTES = 65536
_END_S = 5.0  # for the parent of a program to end all of it, before it is killed itself
_OF_ITS_OWN = (Path("/proc"), Path("/dev"), Path(WORK))
"""Folders that a program has in place of the machine's."""
_TASKS_PER_PROCESS = 2  # the kernel counts threads; the parent inside sees the excess first
HOW_TO_INSTALL = "Install it: apt-get install bubblewrap (0.7 or later), or your system's package."
_AS_ROOT = " Others must be able to read them: for root it runs as a user without rights."
NO_LIMIT = (
    "the kernel does not limit the number of processes here, so that a fork bomb can take the "
    "machine: use an ordinary user, or for root a Python that others may read"
)
WITHOUT = (
    "Or set execution.sandbox to none-i-trust-all-generated-code, which lets what the model "
    "writes do whatever you may do."
)
_FILES_ARE_SEEN = """
import os, sys
program, *files = sys.argv[1:]
if not os.access(program, os.X_OK): sys.exit(program)
sys.exit(next((each for each in files if not os.access(each, os.R_OK)), 0))
"""


logger = logging.getLogger(__name__)


class Failure(Enum):
    """Why a program has not done what it was started for."""

    TIME = "it took too long"
    CPU = "it took more processor time than it may"
    MEMORY = "it needed more memory than it may have"
    PROCESSES = "it started more processes than it may"
    OUTPUT = "it wrote more than is read"
    NOT_STARTED = "it could not be started"
    STATUS = "it ended with an error"


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended, and what it wrote."""

    output: bytes
    errors: str = ""
    """The end of what it wrote to its standard error."""
    status: int | None = None
    """Its exit status, 128 more than that of a signal; None if it was ended from outside."""
    failure: Failure | None = None
    """None if its exit status is 0."""


_FAILURES = {
    128 + signal.SIGXCPU: Failure.CPU,
    inside.MEMORY: Failure.MEMORY,
    inside.PROCESSES: Failure.PROCESSES,
    inside.NOT_STARTED: Failure.NOT_STARTED,
}


@cache
def _warn_once() -> None:
    logger.warning("sandbox: %s", NO_LIMIT)


class Sandbox:
    """Runs programs one way; `at_a_time` of them at most, the others wait for their turn."""

    def __init__(self, spec: ExecutionSpec, files: Sequence[Path] = ()) -> None:
        """`files` may be read, too: those that the command names."""
        self._spec = spec
        self._reads = (*spec.reads, *files)
        self._isolated = spec.sandbox == "bubblewrap"
        self.at_a_time = spec.at_a_time or usable_cores()
        self._turns = asyncio.Semaphore(self.at_a_time)

    def __str__(self) -> str:
        """What holds for its programs, in a sentence."""
        spec = self._spec
        limits = (
            f"{spec.cpu_s} s of CPU time each, {spec.wall_s:g} s by the clock, {spec.memory_mb} "
            f"MiB of memory, {spec.processes} processes, {spec.files_mb} MiB of files; "
            f"{self.at_a_time} at a time"
        )
        if self._isolated:
            return (
                f"{find_bubblewrap().description}: no network, nothing of this machine to write, "
                f"of its files the system's, this Python's and those given to read; {limits}"
                f"{'' if find_bubblewrap().limits_processes else f'; {NO_LIMIT}'}"
            )
        return (
            f"no sandbox ({spec.sandbox}): your files and the network are open to what the model "
            f"writes; {limits}"
        )

    def require(self, command: Sequence[str] = ("python",)) -> None:
        """Raise ConfigError if no program can be run so, or not this one."""
        bubblewrap = find_bubblewrap() if self._isolated else None
        if bubblewrap and bubblewrap.path is None:
            raise ConfigError(
                f"What a model writes is executed in a sandbox only, and {bubblewrap.description}.",
                hint=f"{HOW_TO_INSTALL}\n{WITHOUT}",
            )
        if bubblewrap and not bubblewrap.limits_processes:
            _warn_once()
        for path in self._spec.reads:
            real = path.resolve()
            if self._isolated and any(
                real in (each, *each.parents) or each in real.parents for each in _OF_ITS_OWN
            ):
                raise ConfigError(
                    f"execution.reads: {path} cannot be read in the sandbox, which has /proc, "
                    "/dev and /tmp of its own.",
                    hint="Name the folders that are needed, such as /etc/ssl.",
                )
            if not path.exists():
                raise ConfigError(
                    f"execution.reads: {path} is not there.",
                    hint="A relative path starts at the deployment file.",
                )
        program, *others = self.resolved(command)
        if others and others[0].endswith(".py") and not Path(others[0]).is_file():
            raise ConfigError(
                f"There is no file {others[0]!r:.200}.",
                hint="A relative path starts at the deployment file.",
            )
        files = [word for word in others if Path(word).is_absolute() and Path(word).exists()]
        check = [sys.executable, "-I", "-S", "-c", _FILES_ARE_SEEN, program, *files]
        # without a turn, which is of another event loop; in a thread, for this one's may run one
        with self._folder() as folder, ThreadPoolExecutor(1) as thread:
            end = thread.submit(asyncio.run, self._run(check, b"", folder)).result()
        if end.failure:
            raise ConfigError(
                f"{end.errors.strip() or end.failure.value:.300}: this cannot be run or read "
                "in the sandbox.",
                hint="Name the folders that it needs in execution.reads."
                + _AS_ROOT * bool(bubblewrap and bubblewrap.changes_user),
            )

    def resolved(self, command: Sequence[str]) -> list[str]:
        """A command whose program is a path; raises ConfigError if there is none."""
        program = shutil.which(command[0], path=_path())
        if program is None:
            raise ConfigError(
                f"There is no program {command[0]!r:.200}.",
                hint="Give its path, relative to the deployment file, or a name on PATH.",
            )
        return [str(Path(program).absolute()), *command[1:]]

    async def run(self, command: Sequence[str], stdin: bytes) -> ProgramEnd:
        """Run a program, its first word a path; cancelling ends it, and all that it started."""
        async with self._turns:
            with self._folder() as folder:
                return await self._run(command, stdin, folder)

    async def _run(self, command: Sequence[str], stdin: bytes, folder: str) -> ProgramEnd:
        theirs, ours = os.pipe()
        # half started, it could not be cancelled: asyncio would wait for it for ever
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *self._line(command, theirs),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment(folder),
                cwd=folder,
                start_new_session=True,  # out of reach of the terminal's Ctrl-C
                pass_fds=(theirs,),
            )
        )
        try:
            process = await asyncio.shield(starting)
            async with asyncio.timeout(self._spec.wall_s):
                output, errors = await _exchange(process, stdin)
                status = await process.wait()
        except TimeoutError:
            return ProgramEnd(b"", failure=Failure.TIME)
        except OverflowError:
            return ProgramEnd(b"", failure=Failure.OUTPUT)
        except OSError as error:
            return ProgramEnd(b"", str(error), failure=Failure.NOT_STARTED)
        finally:
            os.close(ours)
            if not starting.done():
                await asyncio.wait([starting])
            os.close(theirs)
            if starting.exception() is None:
                await _end(starting.result())
        failure = _FAILURES.get(status, Failure.STATUS) if status else None
        return ProgramEnd(output, errors.decode(errors="replace"), status, failure)

    def _folder(self) -> contextlib.AbstractContextManager[str]:
        """The working folder as seen from outside: of a sandbox any, for it has one of its own."""
        if self._isolated:
            return contextlib.nullcontext("/")
        return tempfile.TemporaryDirectory(prefix="tts-", ignore_cleanup_errors=True)

    def _environment(self, folder: str) -> dict[str, str]:
        home = WORK if self._isolated else folder
        inherited = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        temporary = {"HOME": home, "TMPDIR": home}
        # programs run one on each core, and the kernel counts threads as processes
        usual = {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        return {"PATH": _path(), **usual, **temporary, **inherited}

    def _line(self, command: Sequence[str], lifeline: int) -> list[str]:
        spec = self._spec
        limits = {
            "cpu_s": spec.cpu_s,
            "memory_bytes": spec.memory_mb << 20,
            "file_bytes": spec.files_mb << 20,
            "processes": spec.processes,
            "tasks": None,
            "lifeline": lifeline,
        }
        if not self._isolated:
            return [*bare({**limits, "user": None, "filter": ""}), *command]
        bubblewrap = find_bubblewrap()
        if bubblewrap.limits_processes:
            limits["tasks"] = _TASKS_PER_PROCESS * spec.processes
        return [*wrapped(bubblewrap, limits, self._reads, spec.files_mb), *command]


def _path() -> str:
    """Where programs are looked for: first of all beside this Python."""
    return os.pathsep.join([beside_python(), os.environ.get("PATH", os.defpath)])


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait until a program that is not wanted any more has ended, with all that it started."""
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # of pipes that are still open; there is no other way to them
        process._transport.close()  # type: ignore[attr-defined]


async def _exchange(process: asyncio.subprocess.Process, content: bytes) -> tuple[bytes, bytes]:
    """What a program writes; raises OverflowError as soon as that is too much."""
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None

    async def write() -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read
            stdin.write(content)
            await stdin.drain()
        stdin.close()

    async def read() -> bytes:
        output = b""
        while chunk := await stdout.read(_CHUNK_BYTES):
            output += chunk
            if len(output) > MAX_OUTPUT_BYTES:
                raise OverflowError
        return output

    async def read_errors() -> bytes:
        end = b""
        while chunk := await stderr.read(_CHUNK_BYTES):
            end = (end + chunk)[-_KEPT_ERRORS:]
        return end

    output, errors, _ = await asyncio.gather(read(), read_errors(), write())
    return output, errors
