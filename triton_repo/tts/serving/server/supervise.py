"""Keeping a server running: one that died is started again, at the same addresses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tts.build.errors import ServerError
from tts.build.spec import Deployment

from ..command.ports import Addresses
from .start import start_server

CHECK_INTERVAL_S = 1.0
MOST_RESTARTS = 5
"""What fails more often within WINDOW_S will fail again: its cause is not gone by a restart."""
WINDOW_S = 600.0
FIRST_WAIT_S = 1.0
"""Before a restart; doubled for each further failure in the window."""


def supervise(
    deployment: Deployment, *, iteration_log: bool = False, say: Callable[[str], None]
) -> None:
    """Serve a deployment until Ctrl-C; `say` gets one line per stage.

    Raises the last ServerError when it does not start in the first place or fails too often.
    """
    addresses: Addresses | None = None
    failures: list[float] = []
    while True:
        try:
            with start_server(
                deployment,
                iteration_log=iteration_log,
                say=say,
                addresses=addresses,
                supervised=True,
            ) as server:
                if addresses is None:
                    say("Press Ctrl-C to stop.")
                addresses = server.addresses
                try:
                    while True:
                        server.check()
                        time.sleep(CHECK_INTERVAL_S)
                except KeyboardInterrupt:
                    say("Stopping ...")
                    return
        except ServerError as error:
            failures.append(time.monotonic())
            wait = wait_before_restart(failures)
            if addresses is None or wait is None:
                raise
            say(f"{error.message} It is started again in {wait:.0f} s.")
            time.sleep(wait)


def wait_before_restart(failures: Sequence[float]) -> float | None:
    """Seconds to wait after the last of some failures, or None if there were too many.

    `failures` are the times of all failures so far, in order, in seconds.
    """
    recent = sum(failures[-1] - failure < WINDOW_S for failure in failures)
    return None if recent > MOST_RESTARTS else FIRST_WAIT_S * 2.0 ** (recent - 1)
