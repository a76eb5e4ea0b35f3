"""Launching one server under its guard, and stopping it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psutil

from tts.base.errors import ServerError

from ..command import guard
from ..command.server_command import ServerCommand
from ..command.tritonserver import remove_container_command
from .locks import close_lock, locked_after_a_stop
from .service import Service
from .state import ProcessIdentity, TransientStartError, death, end_processes, identify

_START_S = 10.0
_TELLS_S = 5.0
"""A guard has cleaned up after its server by then, unless it removes a container."""


class PortTaken(ServerError):
    """Another process took a port between the choice and the launch."""


class Stopped(ServerError):
    """Another process asked the guard to stop the server."""


@dataclass(frozen=True)
class Launched:
    """A server process under its guard; it may not be ready yet."""

    service: Service
    guard: subprocess.Popen[bytes]
    server: ProcessIdentity
    command: ServerCommand

    def require_running(self) -> None:
        """Raise ServerError with the reason from the log if the server has exited."""
        status = self.guard.poll()
        if status is None and self.server.process() is None:  # the guard cleans up, then says how
            with suppress(subprocess.TimeoutExpired):
                status = self.guard.wait(_TELLS_S)
        if status is not None:
            raise why_stopped(self.service, status)

    def stop(self) -> None:
        """Stop the server and wait until nothing of it is left; harmless when repeated."""
        stop_guard(self.guard)
        if self.guard.returncode < 0:  # the guard itself was killed
            end_processes(self.command.mark, self.server, self.command.container)

    def leave(self) -> None:
        """Leave a shared server to its guard, which stops it when it has no more users."""
        self.guard.send_signal(signal.SIGUSR1)
        with suppress(RuntimeError):  # Python is ending
            threading.Thread(target=self.guard.wait, daemon=True).start()  # else it is a zombie


def launch(
    service: Service, command: ServerCommand, variables: dict[str, str], *, shared: bool = False
) -> Launched:
    """Start a server in the given environment; the log of the previous start is kept.

    Whether it is `shared`, its guard must know. Raises ServerError if it exits at once.
    """
    python = Path(sys.executable).absolute()  # found by a relative PATH, it may be relative
    guarded = [str(python), "-I", "-S", guard.__file__, str(os.getpid())]
    guarded += [command.mark, command.addresses.socket]
    guarded += [guard.PRIVATE] if command.private else []
    guarded += [*((guard.SHARED, str(service.folder)) if shared else ()), *command.words]
    if command.container:  # a container outlives a killed docker command
        guarded += [guard.THEN, *remove_container_command(command.container)]
    with after_the_last_guard(service.folder) as lock, _fresh(service.log) as output:
        process = subprocess.Popen(
            guarded,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables | command.variables,
            cwd=service.folder,
            pass_fds=(lock,),
            start_new_session=True,  # Ctrl-C in the terminal reaches only us
        )
    try:
        return Launched(service, process, _server_of(service, process), command)
    except BaseException:
        stop_guard(process)
        end_processes(command.mark, None, command.container)  # if the guard itself was killed
        raise


def stop_guard(process: subprocess.Popen[bytes]) -> None:
    """Ask a guard to stop its server; kill it (and with it the server) if it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(guard.LONGEST_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _fresh(log: Path) -> BinaryIO:
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    return log.open("ab")  # appending, as the stubs write to it as well


@contextmanager
def after_the_last_guard(folder: Path) -> Iterator[int]:
    """The lock that a guard holds as long as it runs, once the last one has let go of it.

    So a guard that ends never removes files of the next server, such as its socket. Raises
    ServerError if the last one does not end.
    """
    lock = locked_after_a_stop(folder / "guard.lock")
    try:
        yield lock
    finally:
        close_lock(lock)


def _server_of(service: Service, process: subprocess.Popen[bytes]) -> ProcessIdentity:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            for child in psutil.Process(process.pid).children():
                return identify(child.pid)
        except (psutil.NoSuchProcess, ProcessLookupError):
            pass
        time.sleep(0.01)
    if (status := process.poll()) is not None:
        raise why_stopped(service, status)
    raise ServerError(f"The {service.title} could not be run.", hint=f"Its log: {service.log}")


def why_stopped(service: Service, status: int) -> ServerError:
    """The reason for the exit status of a server's guard."""
    hint = f"Its log: {service.log}"
    if status == 0:
        return Stopped(f"The {service.title} was stopped by another process.", hint=hint)
    number = -status if status < 0 else status - 128  # negative: the guard itself was killed
    if number in set(signal.Signals):
        return TransientStartError(f"{death(f'The {service.title}', number)}.", hint=hint)
    return service.failure(status)
