"""`tts serve` in a process of its own: its memory, its deaths, what it leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tts.build import paths
from tts.serving.server.state import LOG, STATE, ServerState, read_state

CODE = "import sys; sys.argv[0] = 'tts'; from tts.cli import main; main()"
KNOWN_CRASH = "!byte_buffer->Valid()"
"""What Triton says of itself when streams end it, in its log."""
DEATH = re.compile("died|was killed by|exited with")
BACK_WITHIN_S = 60.0
"""The longest wait before a restart, 16 s, and the start itself."""


class Served:
    """A deployment under `tts serve`, started again when that has given up."""

    def __init__(self, deployment: Path, name: str, home: Path) -> None:
        """`home` is TTS_HOME, with the engines built, and must be this process's as well."""
        self._deployment, self._name, self._home = deployment, name, home
        self._output = home / "serve.log"
        self._output.write_bytes(b"")
        self._process = self._start()
        self._prefixes: tuple[str, ...] = ()
        self._sockets: set[str] = set()
        self._deaths = 0
        self.given_up = 0
        """How often `tts serve` ended by itself, as it does after too many deaths."""

    def _start(self) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-c", CODE, "serve", str(self._deployment)],
                stdout=output,
                stderr=output,
                env={**os.environ, "TTS_HOME": str(self._home)},
                start_new_session=True,
            )

    def state(self) -> ServerState | None:
        """The server that runs, if one does."""
        return read_state(paths.server_dir(self._name) / STATE)

    def wait(self) -> ServerState:
        """The server, as soon as one is ready; raises TimeoutError if none comes back."""
        deadline = time.monotonic() + BACK_WITHIN_S
        while time.monotonic() < deadline:
            if state := self.state():
                self._prefixes = tuple({*self._prefixes, state.shm_prefix})
                self._sockets = {*self._sockets, state.addresses.socket} - {""}
                return state
            if self._process.poll() is not None:
                self.given_up += 1
                self._process = self._start()
            time.sleep(0.1)
        raise TimeoutError(f"the server was not back within {BACK_WITHIN_S:.0f} s: {self.said()}")

    def new_deaths(self) -> list[str]:
        """What `tts serve` said of servers and stubs that died since the last call, in lines."""
        lines = [line for line in self.said().splitlines() if DEATH.search(line)]
        new, self._deaths = lines[self._deaths :], len(lines)
        return new

    def said(self) -> str:
        """All that `tts serve` has printed."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def crash_is_known(self) -> bool:
        """Whether the last server that died was ended by Triton's own fault."""
        logs = (paths.server_dir(self._name) / name for name in (LOG, "triton.previous.log"))
        return any(KNOWN_CRASH in log.read_text(errors="replace") for log in logs if log.exists())

    def resident(self) -> dict[str, int]:
        """Bytes of memory of the server and of each stub, by name."""
        state = self.state()
        process = state.server.process() if state and state.server else None
        if process is None:
            return {}
        sizes = {"tritonserver": process.memory_info().rss}
        for stub in process.children(recursive=True):
            with suppress(psutil.NoSuchProcess, IndexError):  # it may die, or be no stub
                sizes[Path(stub.cmdline()[1]).parents[1].name] = stub.memory_info().rss
        return sizes

    def stop(self) -> list[str]:
        """Stop it as Ctrl-C does; what is left of it a moment later."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return ["tts serve had to be killed"]
        left: list[str] = []
        for _ in range(50):
            left = self._left()
            if not left:
                break
            time.sleep(0.1)
        return left

    def _left(self) -> list[str]:
        mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
        processes = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if process.pid not in mine and any(str(self._home) in word for word in words):
                processes.append(f"process {process.pid}: {' '.join(words)[:100]}")
        regions = Path("/dev/shm").glob("tts-*")
        shared = [str(region) for region in regions if region.name.startswith(self._prefixes)]
        return [*processes, *shared, *(path for path in self._sockets if Path(path).exists())]


@contextmanager
def serving(deployment: Path, name: str, home: Path) -> Iterator[Served]:
    """A server that is ready, stopped in the end."""
    served = Served(deployment, name, home)
    try:
        served.wait()
        yield served
    finally:
        served.stop()
