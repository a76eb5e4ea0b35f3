"""A server that a thread of this process keeps running, for a process that does other things."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tts.build.errors import ServerError, TtsError
from tts.build.spec import Deployment

from .loading import Loading
from .supervise import supervise
from .supervisor import is_down


class BackgroundServer(threading.Thread):
    """Supervises one server (see `supervise`) until `stop` is set, or it fails for good."""

    def __init__(
        self,
        deployment: Deployment,
        stop: threading.Event,
        say: Callable[[str], None],
        on_loading: Callable[[Loading], None] = lambda loading: None,
        iteration_log: bool | None = None,
        *,
        lasting: bool = True,
    ) -> None:
        """`say` and `on_loading` are called in the thread; `lasting`: see `supervise`."""
        # a daemon: a program that never ends it can still end, and its server with it
        super().__init__(name=deployment.server_name, daemon=True)
        self.ready = threading.Event()
        """Set when it serves for the first time."""
        self.error: TtsError | None = None
        """Why it has failed for good."""
        self._deployment = deployment
        self._stop_serving = stop
        self._say = say
        self._on_loading = on_loading
        self._iteration_log = iteration_log
        self._lasting = lasting

    def comes_back(self) -> bool:
        """Whether its server is down, and is started again."""
        return self.is_alive() and is_down(self.name)

    def check(self) -> None:
        """Raise the error with which it has failed for good."""
        if not self.is_alive():
            raise self.error or ServerError("The Triton server was stopped.")

    def run(self) -> None:
        """See supervise."""
        try:
            supervise(
                self._deployment,
                iteration_log=self._iteration_log,
                say=self._say,
                on_loading=self._on_loading,
                on_ready=self.ready.set,
                stop=self._stop_serving,
                lasting=self._lasting,
            )
        except KeyboardInterrupt:
            pass
        except TtsError as error:
            self.error = error
