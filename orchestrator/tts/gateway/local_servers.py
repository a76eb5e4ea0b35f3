"""The servers of a gateway without `--endpoint`: those of this machine, or one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tts.build.spec import Deployment
from tts.serving.server.loading import Loading
from tts.session.connecting import require_engines
from tts.session.server import Server, open_server

LOOK_S = 0.1


@dataclass(frozen=True)
class LocalServers:
    """Where a deployment is served on this machine."""

    groups: Mapping[str, str]
    """The addresses, none with a group."""
    own: Server | None = None
    """The one that the gateway has started, if it has."""

    async def watch(self) -> None:
        """Wait for ever, or until the gateway's own server has failed for good: ServerError."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self.own:
                self.own.check()


@asynccontextmanager
async def local_servers(
    deployment: Deployment,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
) -> AsyncIterator[LocalServers]:
    """The servers of this machine, or one that runs as long as the block, or as others use it.

    `say` and `on_loading` are called in the loop's thread. Raises a TtsError: engines are missing
    or old, or the server does not start.
    """
    if several := await require_engines(deployment, (), say):
        yield LocalServers(dict.fromkeys(several, ""))
        return
    server = await open_server(deployment, say, on_loading, lasting=True)
    try:
        yield LocalServers({server.name: ""}, server if server.started else None)
    finally:
        await asyncio.to_thread(server.stop)
