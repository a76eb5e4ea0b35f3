"""A server that a thread of this process keeps running, for a process that does other things."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tts.build.errors import TtsError
from tts.build.spec import Deployment

from .loading import Loading
from .supervise import supervise


class BackgroundServer(threading.Thread):
    """Supervises one server (see `supervise`) until `stop` is set, or it fails for good."""

    def __init__(
        self,
        deployment: Deployment,
        stop: threading.Event,
        say: Callable[[str], None],
        on_loading: Callable[[Loading], None] = lambda loading: None,
        iteration_log: bool | None = None,
    ) -> None:
        """`say` and `on_loading` are called in the thread."""
        super().__init__(name=deployment.server_name)
        self.ready = threading.Event()
        """Set when it serves for the first time."""
        self.error: TtsError | None = None
        """Why it has failed for good."""
        self._deployment = deployment
        self._stop_serving = stop
        self._say = say
        self._on_loading = on_loading
        self._iteration_log = iteration_log

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
            )
        except KeyboardInterrupt:
            pass
        except TtsError as error:
            self.error = error
