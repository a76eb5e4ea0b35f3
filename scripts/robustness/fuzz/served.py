"""`tts serve` in a process of its own: its memory, its deaths, what it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from scripts.robustness.commands import processes, run, start
from tts.build import paths
from tts.serving.server.state import LOG, STATE, ServerState, read_state

RUN = "--strategy beam-search --n 8 --limit 5 --seed 3 --out"
KNOWN_CRASH = "!byte_buffer->Valid()"
"""What Triton says of itself when a stream with several requests ends it, in its log."""
DEATH = re.compile("died|was killed by|server stopped")
BACK_WITHIN_S = 60.0
"""The longest wait before a restart, 16 s, and the start itself."""


class Served:
    """The demo pair under `tts serve`, which is started again when it has given up."""

    def __init__(self, home: Path, *, tcp: bool) -> None:
        """`home` is TTS_HOME, an empty folder; `tcp` opens a port instead of the socket."""
        self.given_up = 0
        """How often `tts serve` ended by itself, as it does after too many deaths."""
        self._home = home
        self._output = home / "serve.log"
        self._deployment = home / "demo.yaml"
        bundled = paths.deployments_dir() / "demo.yaml"
        checkpoints = bundled.parents[1] / "checkpoints"
        text = bundled.read_text("utf-8").replace("../checkpoints", str(checkpoints))
        if tcp:
            with socket.create_server(("127.0.0.1", 0)) as free:
                text = text.replace("grpc_port: auto", f"grpc_port: {free.getsockname()[1]}")
        self._deployment.write_text(text, "utf-8")
        run(self._home, "build-engines", self._deployment, "--no-verify")
        self._process = self._start()
        self._prefixes: set[str] = set()
        self._sockets: set[str] = set()
        self._deaths = 0

    def address(self) -> str:
        """Where the server listens, as soon as one is ready; raises TimeoutError."""
        deadline = time.monotonic() + BACK_WITHIN_S
        while time.monotonic() < deadline:
            if state := self._state():
                self._prefixes.add(state.shm_prefix)
                self._sockets.add(state.addresses.socket)
                return state.addresses.grpc
            if self._process.poll() is not None:
                self.given_up += 1
                self._process = self._start()
            time.sleep(0.1)
        raise TimeoutError(f"the server was not back within {BACK_WITHIN_S:.0f} s: {self._said()}")

    def new_deaths(self) -> list[str]:
        """What `tts serve` said of servers and stubs that died since the last call, in lines."""
        lines = [line for line in self._said().splitlines() if DEATH.search(line)]
        new, self._deaths = lines[self._deaths :], len(lines)
        return new

    def crash_is_known(self) -> bool:
        """Whether the last server that died was ended by Triton's own fault."""
        log = self._folder / LOG
        logs = (log, log.with_suffix(".previous.log"))
        return any(
            KNOWN_CRASH in file.read_text(errors="replace") for file in logs if file.exists()
        )

    def resident(self) -> dict[str, int]:
        """Bytes of memory of the server and of each stub with its engine, by name."""
        state = self._state()
        process = state.server.process() if state and state.server else None
        if process is None:
            return {}
        sizes = {"tritonserver": process.memory_info().rss}
        for stub in process.children():
            with suppress(psutil.NoSuchProcess, IndexError):  # it may die, or be no stub
                size = sum(each.memory_info().rss for each in [stub, *stub.children()])
                sizes[Path(stub.cmdline()[1]).parents[1].name] = size
        return sizes

    def tree_digest(self, name: str) -> str:
        """The digest of a short run on this server, kept in a folder of this name."""
        folder = self._home / name
        run(self._home, "bench", self._deployment, *RUN.split(), folder)
        return str(json.loads((folder / "summary.json").read_text("utf-8"))["tree_digest"])

    def stop(self) -> list[str]:
        """Stop it as Ctrl-C does; what is left of it a moment later, a line for each."""
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

    @property
    def _folder(self) -> Path:
        return self._home / "built" / "demo" / "server"

    def _state(self) -> ServerState | None:
        return read_state(self._folder / STATE)

    def _said(self) -> str:
        return self._output.read_text("utf-8", errors="replace")

    def _start(self) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            return start(self._home, "serve", self._deployment, stdout=output, stderr=output)

    def _left(self) -> list[str]:
        mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
        left = [
            f"process {each.pid}: {' '.join(each.info['cmdline'])[:100]}"
            for each in processes(self._home)
            if each.pid not in mine
        ]
        regions = Path("/dev/shm").glob("tts-*")
        shared = [str(region) for region in regions if region.name.startswith((*self._prefixes,))]
        return [*left, *shared, *(path for path in self._sockets if Path(path).is_socket())]


@contextmanager
def serving(*, tcp: bool) -> Iterator[Served]:
    """A server of the demo pair that is ready, in a home of its own; stopped in the end."""
    with tempfile.TemporaryDirectory(prefix="tts-fuzz-") as name:
        served = Served(Path(name).resolve(), tcp=tcp)
        try:
            served.address()
            yield served
        finally:
            served.stop()
