"""How far a server that starts is, from its log, and whether it still gets anywhere."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tts.build.errors import ServerError
from tts.build.spec import Role
from tts.engines import wire
from tts.engines.loading import Stage

from .launch import Launched
from .triton_log import tail

STALL_S = 600.0
"""A server that has done nothing for so long while it loads is given up."""
LOADING, WAITING, WARMING_UP = "loading", "waiting", "warming up"
_ENGINES: dict[str, Role] = {wire.GENERATOR: "generator", wire.PRM_ENGINE: "verifier"}
_BEGUN = re.compile(r'\] "?loading: (?P<model>\w+):\d')
_LOADED = re.compile(r"\] \"?successfully loaded '(?P<model>\w+)'")
_BUSY = 0.1  # of one core: less is what a server spends on waiting
_CHECK_S = 1.0


@dataclass(frozen=True)
class Loading:
    """What a server that starts is doing."""

    seconds: float
    """Since it was launched."""
    engines: dict[Role, Stage]


def read_loading(log: Path, seconds: float) -> Loading:
    """How far the engines are by Triton's own lines and those of the engine host."""
    stages = {model: Stage(model, WAITING) for model in _ENGINES}
    for line in tail(log):
        if (told := Stage.parse(line)) and told.model in stages:
            stages[told.model] = told
        elif (begun := _BEGUN.search(line)) and begun["model"] in stages:
            stages[begun["model"]] = Stage(begun["model"], LOADING)
        elif (loaded := _LOADED.search(line)) and loaded["model"] in stages:
            stages[loaded["model"]] = Stage(loaded["model"], WARMING_UP)
    return Loading(seconds, {_ENGINES[model]: stage for model, stage in stages.items()})


class Watchdog:
    """Ends the wait for a server that does nothing any more, however long it may load."""

    def __init__(self, launched: Launched, stall_s: float = STALL_S) -> None:
        self._launched = launched
        self._stall_s = stall_s
        self._checked = self._active = time.monotonic()
        self._log_bytes, self._cpu_s = self._seen()

    def check(self) -> None:
        """Raise ServerError if the log has not grown, nor a process computed, for `stall_s`."""
        now = time.monotonic()
        passed = now - self._checked
        if passed < min(_CHECK_S, self._stall_s / 4):
            return
        self._checked = now
        log_bytes, cpu_s = self._seen()
        if log_bytes > self._log_bytes or cpu_s - self._cpu_s > _BUSY * passed:
            self._active = now
        self._log_bytes, self._cpu_s = log_bytes, cpu_s
        if now - self._active > self._stall_s:
            raise ServerError(
                "The Triton server is not ready, and has done nothing for "
                f"{self._stall_s:.0f} s: its log did not grow, its processes did not compute.",
                hint=f"Its log: {self._launched.log}",
            )

    def _seen(self) -> tuple[int, float]:
        """Bytes of the log, and CPU seconds of the server's processes on this machine."""
        log_bytes, cpu_s = 0, 0.0
        with suppress(OSError):
            log_bytes = self._launched.log.stat().st_size
        if server := self._launched.server.process():
            with suppress(psutil.Error):
                for process in [server, *server.children(recursive=True)]:
                    with suppress(psutil.Error):
                        times = process.cpu_times()
                        cpu_s += times.user + times.system
        return log_bytes, cpu_s
