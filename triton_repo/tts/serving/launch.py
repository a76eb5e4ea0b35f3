"""Launching one tritonserver under its guard, and stopping it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tts.build.errors import ServerError

from . import guard, triton_log
from .environment import Surroundings
from .ports import Addresses
from .state import Identity, identify
from .tritonserver import TritonServer

EXIT_TIMEOUT_S = 2
"""How long Triton waits for requests in flight when asked to stop; nobody reads them any more."""
_START_S = 10.0
_CLOSED_APIS = "shared-memory,model-repository,trace,logging"


class PortTaken(ServerError):
    """Another process took a port between the choice and the launch."""


@dataclass(frozen=True)
class Launched:
    """A server process under its guard, not known to be ready."""

    guard: subprocess.Popen[bytes]
    server: Identity
    shm_prefix: str
    log: Path

    def require_running(self) -> None:
        """Raise ServerError with the reason from the log if the server has exited."""
        status = self.guard.poll()
        if status is None:
            return
        hint = f"Its log: {self.log}"
        if status == 0:
            raise ServerError("The Triton server was stopped by another process.", hint=hint)
        number = -status if status < 0 else status - 128  # negative: the guard itself was killed
        if number in set(signal.Signals):
            killer = signal.Signals(number).name
            raise ServerError(f"The Triton server was killed by {killer}.", hint=hint)
        reason = triton_log.failure(self.log) or f"exit status {status}, no message"
        kind = PortTaken if triton_log.port_was_taken(self.log) else ServerError
        raise kind(f"The Triton server stopped: {reason}.", hint=hint)

    def stop(self) -> None:
        """Stop the server and wait until nothing of it is left; harmless when repeated."""
        stop_guard(self.guard)


def launch(
    server: TritonServer,
    surroundings: Surroundings,
    repository: Path,
    addresses: Addresses,
    log: Path,
) -> Launched:
    """Start a server on a model repository; its output goes to `log`, the last log is kept.

    Raises ServerError if it exits at once.
    """
    # short and unique: it names the shared memory files and marks the stub processes as ours
    shm_prefix = f"tts-{secrets.token_hex(6)}-"
    command = [str(server.binary), *arguments(surroundings, repository, addresses, shm_prefix)]
    guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), shm_prefix, *command]
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    with log.open("ab") as output:  # appending, as the stubs write to it as well
        process = subprocess.Popen(
            guarded,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=surroundings.variables,
            cwd=log.parent,
            start_new_session=True,  # the terminal's Ctrl-C is for us alone
        )
    try:
        return Launched(process, _server_of(process, log), shm_prefix, log)
    except BaseException:
        stop_guard(process)
        raise


def arguments(
    surroundings: Surroundings, repository: Path, addresses: Addresses, shm_prefix: str
) -> list[str]:
    """The command line of tritonserver."""
    # a key that nobody is told closes what can change or read the server from outside
    key = secrets.token_hex(16)
    return [
        f"--model-repository={repository}",
        "--model-control-mode=none",
        "--disable-auto-complete-config",  # rendered configs are complete; saves a second
        f"--backend-directory={surroundings.backends}",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        f"--grpc-address={addresses.host}",
        f"--grpc-port={addresses.grpc_port}",
        f"--grpc-restricted-protocol={_CLOSED_APIS}:tts-key={key}",
        f"--http-address={addresses.host}",
        f"--http-port={addresses.http_port}",
        f"--http-restricted-api={_CLOSED_APIS}:tts-key={key}",
        f"--metrics-address={addresses.host}",
        f"--metrics-port={addresses.metrics_port}",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        "--pinned-memory-pool-byte-size=0",  # tensors of a request are a few kilobytes
    ]


def stop_guard(process: subprocess.Popen[bytes]) -> None:
    """Ask a guard to stop its server; kill it (and with it the server) if it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(guard.GRACE_S + guard.REAP_S + 1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _server_of(process: subprocess.Popen[bytes], log: Path) -> Identity:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            for child in psutil.Process(process.pid).children():
                return identify(child.pid)
        except (psutil.NoSuchProcess, ProcessLookupError):
            pass
        time.sleep(0.01)
    reason = triton_log.failure(log) or "no message"
    raise ServerError(f"The Triton server could not be run: {reason}.", hint=f"Its log: {log}")
