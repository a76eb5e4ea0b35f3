"""The servers of a gateway that was told of none: those of this machine, or one of its own.

Its own is kept running as `tts serve` keeps one: when it dies it is started again at the same
address, after a pause that doubles, until it has failed too often.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tts.build.errors import Interrupted
from tts.build.spec import Deployment
from tts.serving.server.loading import Loading
from tts.serving.server.supervise import BackgroundServer, wait_for_server
from tts.session.connecting import require_engines

LOOK_S = 0.1


@dataclass(frozen=True)
class LocalServers:
    """Where a deployment is served on this machine."""

    groups: Mapping[str, str]
    """The addresses, none with a group."""
    own: BackgroundServer | None = None
    """The one that the gateway has started, if it has."""

    async def watch(self) -> None:
        """Wait for ever, or until the gateway's own server has failed for good: ServerError."""
        while self.own is None or self.own.is_alive():
            await asyncio.sleep(LOOK_S)
        self.own.check()


@asynccontextmanager
async def local_servers(
    deployment: Deployment,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
) -> AsyncIterator[LocalServers]:
    """The servers of this machine, or one that runs as long as the block.

    `say` and `on_loading` are called in the loop's thread. Raises a TtsError: engines are missing
    or old, or the server does not start.
    """
    if several := await require_engines(deployment, ()):
        yield LocalServers(dict.fromkeys(several, ""))
        return
    loop = asyncio.get_running_loop()
    stop = threading.Event()

    def say_there(line: str) -> None:
        loop.call_soon_threadsafe(say, line)

    def tell_there(loading: Loading) -> None:
        loop.call_soon_threadsafe(on_loading, loading)

    def wanted() -> None:
        if stop.is_set():
            raise Interrupted("The start of the server was given up.")

    own: BackgroundServer | None = None
    try:
        found = await asyncio.to_thread(
            wait_for_server, deployment, say=say_there, on_loading=tell_there, check=wanted
        )
        if found:  # by its name a server of ours is seen to die and to be started again
            address = f"{deployment.name}@1" if found.server else found.addresses.grpc
            yield LocalServers({address: ""})
            return
        own = BackgroundServer(deployment, stop, say_there, tell_there)
        own.start()
        while own.is_alive() and not own.ready.is_set():
            await asyncio.sleep(LOOK_S)
        if not own.ready.is_set():
            own.check()
        yield LocalServers({f"{deployment.name}@1": ""}, own)
    finally:
        stop.set()
        if own:
            await asyncio.to_thread(own.join)
