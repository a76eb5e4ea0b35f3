"""The state of a running server, and the file that shares it with other processes.

`server.json` is in the deployment's server folder while a server of ours runs. A pid alone proves
nothing (it is reused), so the start of the process is kept with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil

from tts.base.errors import ServerError
from tts.base.input_files import Unreadable, as_text, parse_json

from ..command.guard import remove_shared_memory, remove_socket
from ..command.ports import Addresses
from ..command.server_command import MARK
from ..command.tritonserver import remove_container

# indices of fields 6 and 22 of /proc/PID/stat, see proc_pid_stat(5)
_SESSION, _STARTED = 3, 19


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, as opposed to a later one with the same pid."""

    pid: int
    started_ticks: int
    """When it started, in kernel ticks since boot, which no change of the clock affects."""

    def process(self) -> psutil.Process | None:
        """The process, or None if it is gone (a zombie is gone)."""
        try:
            fields = process_fields(self.pid)
            gone = not fields or fields[0] in "ZX" or int(fields[_STARTED]) != self.started_ticks
            _processes[self] = None if gone else psutil.Process(self.pid)
        except psutil.NoSuchProcess:
            _processes[self] = None
        except OSError:  # no descriptor is free to look with: as it was
            pass
        return _processes.get(self)


_processes: dict[ProcessIdentity, psutil.Process | None] = {}
"""The processes that were looked for, as they were then."""


@dataclass(frozen=True)
class ServerState:
    """A server that serves a deployment."""

    deployment: str
    digest: str
    addresses: Addresses
    server: ProcessIdentity | None = None
    """Its first process; None for a server that we did not start."""
    guard: ProcessIdentity | None = None
    mark: str = ""
    container: str = ""
    """Name of the container that it runs in; `server` is then the docker command beside it."""
    supervisor: ProcessIdentity | None = None
    """The process that keeps it running for all, if any: it ends when the server is stopped."""
    shared: bool = False
    """Whether it ends with the last of its users (`locks.py`)."""
    started: str = ""
    """UTC, ISO 8601."""
    stopping: bool = False
    """Whether a process has asked for its end."""

    def __str__(self) -> str:
        who = f"PID {self.server.pid}, since {self.started}" if self.server else "not ours"
        return f"the server at {self.addresses} ({who})"


def identify(pid: int) -> ProcessIdentity:
    """The identity of a running process; raises ProcessLookupError."""
    fields = process_fields(pid)
    if not fields:
        raise ProcessLookupError(f"process {pid} is gone")
    return ProcessIdentity(pid, int(fields[_STARTED]))


def process_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state letter on; empty if there is no such process.

    Raises OSError where no descriptor is free.
    """
    try:
        # the name before them may hold spaces and brackets
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError, UnicodeDecodeError):
        return []


def now() -> str:
    """The current time as the state file keeps it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_state(file: Path, state: ServerState) -> None:
    """Write the state file atomically."""
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
    temporary.replace(file)


def read_state(file: Path) -> ServerState | None:
    """The live server described by a state file, or None.

    The file of a dead server is removed, together with whatever the server left behind.
    """
    state = peek_state(file)
    if state:
        if state.server and state.server.process():
            return state
        clean_up(state)
        remove_socket(state.addresses.socket)
    forget(file, state)
    return None


def forget(file: Path, state: ServerState | None) -> None:
    """Remove the file of a server that has ended, or a damaged one; a newer server's stays."""
    now = peek_state(file)
    if now is None or (state and now.mark == state.mark):
        file.unlink(missing_ok=True)


def peek_state(file: Path) -> ServerState | None:
    """What a state file says, whether or not that server still runs; None if it says nothing."""
    try:
        return parse_state(file.read_bytes())
    except (FileNotFoundError, ServerError):
        return None


def clean_up(state: ServerState) -> None:
    """Kill what still runs of a server; remove its shared memory and its container."""
    but = state.guard.pid if state.guard else None
    end_processes(state.mark, state.server, state.container, but=but)


def end_processes(
    mark: str,
    server: ProcessIdentity | None,
    container_name: str,
    *,
    but: int | None = None,
) -> None:
    """Kill what carries a start's mark, and the session of its first process; remove its shared
    memory and its container.

    `but` is a process that ends by itself. A mark that no start of ours could have chosen may match
    processes of anything: then nothing is done.
    """
    if not re.fullmatch(MARK, mark):
        return
    killed = []
    for process in psutil.process_iter(["uids", "cmdline"]):
        # Triton's stubs carry the mark; engines rename their processes, which stay in the session
        words, uids = process.info["cmdline"], process.info["uids"]
        if uids is None or uids.real != os.getuid() or process.pid == but:
            continue
        marked = any(mark in word for word in words or ())
        if marked or (server and _is_in_session_of(server, process.pid)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, timeout=1.0)
    if container_name.startswith(mark):
        remove_container(container_name)
    remove_shared_memory(mark)


def _is_in_session_of(leader: ProcessIdentity, pid: int) -> bool:
    """Whether a process is in the session that a server began, which may have ended itself."""
    fields, first = process_fields(pid), process_fields(leader.pid)
    if not fields or int(fields[_SESSION]) != leader.pid:
        return False
    return not first or int(first[_STARTED]) == leader.started_ticks  # the pid is not another's


def parse_state(content: bytes) -> ServerState:
    """A state as `write_state` writes it; raises ServerError if it is damaged."""
    try:
        return msgspec.convert(parse_json(as_text(content)), ServerState)
    except (Unreadable, msgspec.ValidationError) as error:
        raise ServerError(f"The state of a server cannot be read: {error}.") from error


class TransientStartError(ServerError):
    """A start that failed by no fault of the deployment's; another may well succeed.

    Triton's Python backend takes a stub that has not moved for a second (by the wall clock) for
    dead: on a machine that is busy enough, or whose clock jumps forward. Then it waits for ever
    for the end of a stub that lives, or aborts by a lock_exception, or says that the stub is not
    healthy.
    """

    def plain(self) -> ServerError:
        """A plain ServerError of this message, for those who cannot start again."""
        return ServerError(self.message, hint=self.hint)


def death(what: str, number: int) -> str:
    """`The server was killed by SIGKILL`, or `The server died` where the signal is not known, 0."""
    return f"{what} was killed by {signal.Signals(number).name}" if number else f"{what} died"


def signal_of(pid: int) -> int:
    """The signal that killed a process, if it is a zombie, whose exit status can still be read."""
    fields = process_fields(pid)
    return int(fields[-1]) & 0x7F if fields else 0
