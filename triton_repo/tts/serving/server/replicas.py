"""Several servers of one deployment on this machine, each with ports and files of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.spec import Deployment

from .loading import Loading
from .lookup import state_file, stop_server
from .state import read_state
from .supervise import BackgroundServer

_POLL_S = 0.2


def known_replicas(deployment: Deployment) -> list[Deployment]:
    """Every replica that has run here, by number, the first included (`Deployment.replica`)."""
    folder = paths.server_dir(deployment.name)
    numbers = {1}
    for each in folder.parent.glob(f"{folder.name}-*"):
        number = each.name.removeprefix(f"{folder.name}-")
        if number.isdecimal() and int(number) > 1:
            numbers.add(int(number))
    return [deployment.replica(number) for number in sorted(numbers)]


def running_replicas(deployment: Deployment) -> list[Deployment]:
    """The replicas whose server runs now, whichever process has started it."""
    return [each for each in known_replicas(deployment) if read_state(state_file(each))]


def stop_replicas(deployment: Deployment) -> bool:
    """Stop every server of a deployment; False if there is none. See `stop_server`."""
    stopped = [stop_server(each) for each in known_replicas(deployment)]
    return any(stopped)


def supervise_replicas(
    deployment: Deployment,
    count: int,
    *,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None] = lambda loading: None,
) -> None:
    """Serve a deployment by `count` servers until Ctrl-C, started one after the other.

    Each is supervised by itself, in a thread of this process. Raises the TtsError of one that does
    not start in the first place; later, that of the last to fail for good.
    """
    stop = threading.Event()
    speaking = threading.Lock()

    def say_alone(line: str) -> None:
        with speaking:
            say(line)

    replicas = [
        _Replica(deployment.replica(number, count), stop, say_alone, on_loading)
        for number in range(1, count + 1)
    ]
    started: list[_Replica] = []
    try:
        for replica in replicas:
            started.append(replica)
            replica.start()
            while replica.is_alive() and not replica.ready.wait(_POLL_S):
                pass
            if not replica.ready.is_set():
                raise replica.error or ServerError(f"{replica.name} was stopped.")
        say("Press Ctrl-C to stop all of them.")
        while any(replica.is_alive() for replica in replicas):
            stop.wait(_POLL_S)
        raise replicas[-1].error or ServerError("Every server was stopped.")
    except KeyboardInterrupt:
        if len(started) < count or not started[-1].ready.is_set():
            raise
    finally:
        stop.set()
        for replica in started:
            replica.join()


class _Replica(BackgroundServer):
    """One of several servers, whose lines begin with its name."""

    def __init__(
        self,
        deployment: Deployment,
        stop: threading.Event,
        say: Callable[[str], None],
        on_loading: Callable[[Loading], None],
    ) -> None:
        def say_of_it(line: str) -> None:
            say(f"{self.name}: {line}")

        super().__init__(deployment, stop, say_of_it, on_loading)

    def run(self) -> None:
        """See BackgroundServer; says why it has failed after it had served."""
        super().run()
        if self.error and self.ready.is_set():
            self._say(self.error.message)
