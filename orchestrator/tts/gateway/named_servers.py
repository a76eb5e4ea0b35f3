"""Servers as they are named, by address, by a name or in a file, and followed while that changes.

`dns:NAME:PORT` is every address that NAME resolves to: a headless service of Kubernetes has one for
each pod that is ready. Names are resolved again and again. While that fails, what was found last
stands: a DNS server that is down says nothing of the servers, and one that is gone is noticed by
its requests.

A file has a server a line, `10.0.0.2:8001 throughput`, with its group if it has one, for the policy
that chooses by concurrency.

A server that is new is used once it has given a real answer. One that is gone from where it was
named gets nothing new, and is let go of when it has nothing left: so servers are drained for
upgrades.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tts.base.errors import ConfigError, TtsError
from tts.base.input_files import Unreadable, read_text
from tts.fleet.replicas import Replicas

LOOK_S = 0.5
RETRY_S = 2.0
"""After a server that is new has not answered."""
RESOLVE_S = 5.0
PREFIX = "dns:"
_NAME = re.compile(r"dns:(?P<host>[A-Za-z0-9._-]+):(?P<port>\d{1,5})")

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses, HOST:PORT, of a name and a port; raises OSError or UnicodeError."""


def is_well_formed(server: str) -> bool:
    """False for what begins as a name to resolve and is none; true of all else."""
    return not server.startswith(PREFIX) or _NAME.fullmatch(server) is not None


async def resolve(host: str, port: int) -> list[str]:
    """A name's addresses now, by the system's resolver, in a thread.

    They are of one family, IPv4 where there is any: a server that has both would count as two.
    """
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    by_family: dict[int, set[str]] = {}
    for family, _, _, _, address in infos:
        name = f"[{address[0]}]" if family == socket.AF_INET6 else address[0]
        by_family.setdefault(family, set()).add(f"{name}:{port}")
    addresses = by_family.get(socket.AF_INET) or by_family.get(socket.AF_INET6) or set()
    return sorted(addresses)


def read_replicas(file: Path) -> dict[str, str]:
    """The group of each address, empty for none; raises ConfigError."""
    try:
        text = read_text(file)
    except (OSError, Unreadable) as error:
        raise ConfigError(f"The servers in {file} cannot be read: {error}.") from error
    groups: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2 or words[0] in groups or not is_well_formed(words[0]):
            raise ConfigError(
                f"{file}, line {number}: {line.strip()!r:.200} is not one address that is new, and "
                "perhaps a group.",
                hint="Write one server a line: HOST:PORT or dns:NAME:PORT, and perhaps its group.",
            )
        groups[words[0]] = words[1] if len(words) == 2 else ""
    if not groups:
        raise ConfigError(f"{file} names no server.", hint="Write one a line: HOST:PORT.")
    return groups


class NamedServers:
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
        self._resolve = resolve
        self._found: dict[str, list[str]] = {}
        self._tried: dict[str, float] = {}
        self._failing: set[str] = set()

    async def at_first(self, serves: Callable[[str], Awaitable[bool]]) -> dict[str, str]:
        """The group of each address to begin with, at least one.

        An address that a name stands for is one of them where `serves` says that what answers is
        the deployment: while a new version replaces an old one there are both. Until there is one,
        and no address is given as such, it waits.
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
        """The group of each address now; a file that cannot be read any more changes nothing."""
        if self._file and (version := _version(self._file)) != self._version:
            self._version = version
            try:
                self._servers = read_replicas(self._file)
            except ConfigError as error:
                self._say(error.message)
        servers = self._servers
        groups = {server: group for server, group in servers.items() if not _NAME.fullmatch(server)}
        for server, group in servers.items():
            if name := _NAME.fullmatch(server):
                for address in await self._addresses(server, name["host"], int(name["port"])):
                    groups.setdefault(address, group)
        return groups

    async def _addresses(self, server: str, host: str, port: int) -> list[str]:
        now = asyncio.get_running_loop().time()
        if now - self._tried.get(server, float("-inf")) >= RESOLVE_S:
            self._tried[server] = now
            try:
                self._found[server] = await self._resolve(host, port)
            except (OSError, UnicodeError) as error:
                if server not in self._failing:
                    self._failing.add(server)
                    self._say(f"{server} does not resolve now: {error}")
            else:
                self._failing.discard(server)
        return self._found.get(server, [])


async def follow(servers: NamedServers, replicas: Replicas, say: Callable[[str], None]) -> None:
    """Keep the replicas in step with what is named, for ever."""
    joining: dict[str, asyncio.Task[None]] = {}
    leaving: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            await asyncio.sleep(LOOK_S)
            groups = await servers.now()
            if not groups:  # a name that has never resolved: no reason to let all others go
                continue
            in_use = {pair.name for pair in replicas.pairs}
            # a server beside several engines elsewhere: all but one replica have their names
            beside = {
                p.name for p in replicas.pairs if p.connection and p.connection.address in groups
            }
            for tasks in (joining, leaving):
                for name in [name for name, task in tasks.items() if task.done()]:
                    tasks.pop(name).result()
            for name in joining.keys() - groups.keys():
                joining.pop(name).cancel()
            for name in in_use - groups.keys() - beside - leaving.keys():
                say(f"{name} gets nothing new, and is let go of when it has nothing left")
                leaving[name] = asyncio.ensure_future(replicas.remove(name))
            for name in leaving.keys() & groups.keys() & in_use:  # back before it was gone
                leaving.pop(name).cancel()
                replicas.drain(name, False)
            for name in groups.keys() - in_use - joining.keys() - leaving.keys():
                joining[name] = asyncio.ensure_future(_join(name, groups[name], replicas, say))
    finally:
        for task in (*joining.values(), *leaving.values()):
            task.cancel()


async def _join(name: str, group: str, replicas: Replicas, say: Callable[[str], None]) -> None:
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
            status = file.stat()
            return status.st_mtime_ns, status.st_size
    return None
