"""What the cases of a campaign share: engines, undisturbed runs, a server beside them, a clock.

The wall clock of a case is its own and can jump; the machine's stays as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any

import yaml

from scripts.robustness.commands import build_demo, processes, serve
from tts.base import paths

from .runs import Run, leftovers, send

DEPLOYMENT = "demo"
STOP_S = 120.0


class Surroundings:
    """A folder for everything of a campaign; a context manager."""

    def __init__(self, folder: Path, problems: int) -> None:
        self.home = folder / "home"
        self.problems = problems
        self.clock = build_clock(folder)
        """The library of a clock of one's own; None where it cannot be compiled."""
        self._folder = folder
        self._undisturbed: dict[str, Run] = {}
        self._socket: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None
        for name in (self.home, self.sockets, self.cases):
            name.mkdir(mode=0o700)
        build_demo(self.home)

    def __enter__(self) -> Surroundings:
        return self

    def __exit__(self, *_: object) -> None:
        for process in processes(self.home):  # of a case that was interrupted
            send([process], signal.SIGTERM)
        leftovers(self.home)
        if self._server:
            self._server.terminate()
            self._server.wait(STOP_S)

    @property
    def cases(self) -> Path:
        """Folder for what belongs to single cases."""
        return self._folder / "cases"

    @property
    def sockets(self) -> Path:
        """The XDG_RUNTIME_DIR of all cases."""
        return self._folder / "rt"

    def undisturbed(self, strategy: str) -> Run:
        """A complete run of a strategy that nothing happened to."""
        if strategy not in self._undisturbed:
            run = Run(self.home, self.cases / f"clean-{strategy}", strategy, problems=self.problems)
            run.start()
            run.process.wait()
            if not run.complete:
                raise RuntimeError(f"an undisturbed run failed: {run.last_words()}")
            self._undisturbed[strategy] = run
        return self._undisturbed[strategy]

    def served_socket(self) -> Path:
        """The gRPC socket of a server of the same engines that no case started."""
        if self._socket is None:
            self._socket = self._serve()
        return self._socket

    def far_deployment(self, file: Path, port: int) -> str:
        """Write the deployment with its server at a TCP port, which somebody else runs."""
        bundled = paths.deployments_dir() / f"{DEPLOYMENT}.yaml"
        spec: dict[str, Any] = yaml.safe_load(bundled.read_text())
        for role in ("generator", "verifier"):
            spec[role]["checkpoint"] = str((bundled.parent / spec[role]["checkpoint"]).resolve())
        spec["server"]["grpc_port"] = port
        file.write_text(yaml.safe_dump(spec))
        return str(file)

    def _serve(self) -> Path:
        home = self._folder / "far"
        built = home / "built" / DEPLOYMENT
        built.mkdir(parents=True)
        for role in ("generator", "verifier"):
            (built / role).symlink_to(self.home / "built" / DEPLOYMENT / role)
        variables = {"XDG_RUNTIME_DIR": str(self._folder)}
        self._server = serve(home, DEPLOYMENT, self._folder / "serve.err", variables)
        state = json.loads((built / "server" / "server.json").read_text())
        return Path(state["addresses"]["socket"])


def build_clock(folder: Path) -> Path | None:
    """Compile the library to preload; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "clock.so"
    flags = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run(
        [compiler, *flags, str(Path(__file__).with_name("clock.c")), "-ldl", "-pthread"], check=True
    )
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
