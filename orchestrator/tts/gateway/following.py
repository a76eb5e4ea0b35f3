"""The servers that a gateway was told of, and how its replicas follow them while it runs.

A server that is new is used once it has given a real answer. One that is gone from where it was
named gets nothing new, and is let go of when it has nothing left: so servers are drained for
upgrades.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tts.build.errors import ConfigError, TtsError
from tts.session.replicas import Replicas

from .server_names import Names, Resolve, is_well_formed, read_replicas, resolve

LOOK_S = 0.5
RETRY_S = 2.0
"""After a server that is new has not answered."""


class ToldServers:
    """Addresses and names of servers, given as they are or in a file that may change."""

    def __init__(
        self,
        servers: Sequence[str],
        file: Path | None,
        say: Callable[[str], None],
        resolve: Resolve = resolve,
    ) -> None:
        """`say` gets a line for what cannot be read or resolved later on; raises ConfigError."""
        for server in servers:
            if not is_well_formed(server):
                raise ConfigError(
                    f"{server!r:.200} is no name of servers.", hint="Write it as dns:NAME:PORT."
                )
        self._file = file
        self._version = _version(file)
        self._servers: Mapping[str, str] = dict.fromkeys(servers, "")
        if file:
            self._servers = read_replicas(file)
        self._say = say
        self._names = Names(say, resolve)

    async def at_first(self, serves: Callable[[str], Awaitable[bool]]) -> dict[str, str]:
        """The group of each address to begin with, at least one.

        Of the addresses that a name stands for, those where `serves` says that what answers is the
        deployment: while a new version replaces an old one there are both. Until there is one, and
        no address is given as such, it waits.
        """
        waits = False
        while True:
            groups = await self.now()
            resolved = [address for address in groups if address not in self._servers]
            answers = await asyncio.gather(*(serves(address) for address in resolved))
            for address, works in zip(resolved, answers, strict=True):
                if not works:
                    del groups[address]
            if groups:
                return groups
            if not waits:
                waits = True
                self._say(f"Waiting for a server at {', '.join(self._servers)}")
            await asyncio.sleep(RETRY_S)

    async def now(self) -> dict[str, str]:
        """The group of each address, with what has changed.

        A file that cannot be read any more changes nothing.
        """
        if self._file and (version := _version(self._file)) != self._version:
            self._version = version
            try:
                self._servers = read_replicas(self._file)
            except ConfigError as error:
                self._say(error.message)
        return await self._names.expand(self._servers)


async def follow(told: ToldServers, replicas: Replicas, say: Callable[[str], None]) -> None:
    """Keep the replicas as it is told, for ever."""
    joining: dict[str, asyncio.Task[None]] = {}
    leaving: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            await asyncio.sleep(LOOK_S)
            wanted = await told.now()
            if not wanted:  # a name that has never resolved: no reason to let all others go
                continue
            used = {pair.name for pair in replicas.pairs}
            for tasks in (joining, leaving):
                for name in [name for name, task in tasks.items() if task.done()]:
                    tasks.pop(name).result()
            for name in joining.keys() - wanted.keys():
                joining.pop(name).cancel()
            for name in used - wanted.keys() - leaving.keys():
                say(f"{name} gets nothing new, and is let go of when it has nothing left")
                leaving[name] = asyncio.ensure_future(replicas.remove(name))
            for name in leaving.keys() & wanted.keys() & used:  # back before it was gone
                leaving.pop(name).cancel()
                replicas.drain(name, False)
            for name in wanted.keys() - used - joining.keys() - leaving.keys():
                joining[name] = asyncio.ensure_future(_join(name, wanted[name], replicas, say))
    finally:
        for task in (*joining.values(), *leaving.values()):
            task.cancel()


async def _join(name: str, group: str, replicas: Replicas, say: Callable[[str], None]) -> None:
    """Use a server as soon as it answers."""
    why = ""
    while True:
        try:
            await replicas.add(name, group)
        except TtsError as error:
            if error.message != why:
                why = error.message
                say(f"{name} is not used yet: {why}")
            await asyncio.sleep(RETRY_S)
        else:
            say(f"{name} is used")
            return


def _version(file: Path | None) -> tuple[int, int] | None:
    if file:
        with suppress(OSError):
            found = file.stat()
            return found.st_mtime_ns, found.st_size
    return None
