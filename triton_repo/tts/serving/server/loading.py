"""How far a server that starts is, from its log, and whether it still gets anywhere."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tts.build.spec import Role
from tts.engines import wire
from tts.engines.loading import OPEN, Stage

from .service import Service
from .state import Mishap, ProcessIdentity
from .triton_log import tail

STALL_S = 600.0
"""A server that has done nothing for so long while it loads is given up."""
OPEN_STALL_S = 30.0
"""The same once its engines are open: what is left then takes a moment."""
LOADING, WAITING, WARMING_UP = "loading", "waiting", "warming up"
_ENGINES: dict[str, Role] = {
    wire.GENERATOR: "generator",
    wire.PRM: "verifier",
    wire.PRM_ENGINE: "verifier",  # where `prm` is an ensemble, which loads after it
}
_BEGUN = re.compile(r'\] "?loading: (?P<model>\w+):\d')
_LOADED = re.compile(r"\] \"?successfully loaded '(?P<model>\w+)'")
_BUSY = 0.1  # of one core: less is what a server spends on waiting
_CHECK_S = 1.0


@dataclass(frozen=True)
class Loading:
    """The progress of a server that starts."""

    seconds: float
    """Since it was launched."""
    engines: dict[Role, Stage]

    def __str__(self) -> str:
        stages = (
            f"{role}: {stage.doing}" + ("" if stage.fraction is None else f" {stage.fraction:.0%}")
            for role, stage in self.engines.items()
        )
        return ", ".join(stages)

    @property
    def is_open(self) -> bool:
        """Whether every engine is open."""
        return all(stage.doing in (OPEN, WARMING_UP) for stage in self.engines.values())


def read_loading(log: Path, seconds: float, roles: Collection[Role]) -> Loading:
    """How far the engines are by Triton's own lines and those of the engine host.

    `roles` are those that are served.
    """
    models = {model: role for model, role in _ENGINES.items() if role in roles}
    stages = {model: Stage(model, WAITING) for model in models}
    for line in tail(log):
        if (told := Stage.parse(line)) and told.model in stages:
            stages[told.model] = told
        elif (begun := _BEGUN.search(line)) and begun["model"] in stages:
            stages[begun["model"]] = Stage(begun["model"], LOADING)
        elif (loaded := _LOADED.search(line)) and loaded["model"] in stages:
            stages[loaded["model"]] = Stage(loaded["model"], WARMING_UP)
    engines: dict[Role, Stage] = {}
    for model, role in models.items():
        if role not in engines or stages[model].doing != WAITING:
            engines[role] = stages[model]
    return Loading(seconds, engines)


class Watchdog:
    """Ends the wait for a server that does nothing any more, however long it may load."""

    def __init__(
        self, service: Service, process: ProcessIdentity, stall_s: float = STALL_S
    ) -> None:
        """`process` is the server's, or one above it."""
        self._service = service
        self._process = process
        self._stall_s = stall_s
        self._began = self._checked = self._active = time.monotonic()
        self._log_bytes, self._cpu_s = self._seen()

    def check(self) -> None:
        """Raise Mishap if the log has not grown, nor a process computed, for `stall_s`.

        Where the engines are open it is OPEN_STALL_S. All by the monotonic clock.
        """
        now = time.monotonic()
        passed = now - self._checked
        if passed < min(_CHECK_S, self._stall_s / 4):
            return
        self._checked = now
        log_bytes, cpu_s = self._seen()
        if log_bytes > self._log_bytes or cpu_s - self._cpu_s > _BUSY * passed:
            self._active = now
        self._log_bytes, self._cpu_s = log_bytes, cpu_s
        loading = self._service.loading(now - self._began)
        limit = min(self._stall_s, OPEN_STALL_S) if loading.is_open else self._stall_s
        if now - self._active > limit:
            raise Mishap(
                f"The {self._service.title} is not ready, and has done nothing for {limit:.0f} s "
                f"({loading}): its log did not grow, its processes did not compute.",
                hint=f"Its log: {self._service.log}",
            )

    def _seen(self) -> tuple[int, float]:
        """Bytes of the log, and CPU seconds of the server's processes on this machine."""
        log_bytes, cpu_s = 0, 0.0
        with suppress(OSError):
            log_bytes = self._service.log.stat().st_size
        if server := self._process.process():
            with suppress(psutil.Error):
                for process in [server, *server.children(recursive=True)]:
                    with suppress(psutil.Error):
                        times = process.cpu_times()
                        cpu_s += times.user + times.system
        return log_bytes, cpu_s
