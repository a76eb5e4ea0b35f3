"""Servers as they are named: by address, by a name that stands for any number of them, in a file.

`dns:NAME:PORT` is every address that NAME resolves to: a headless service of Kubernetes has one for
each pod that is ready. Names are resolved again and again. While that fails, what was found last
stands: a DNS server that is down says nothing of the servers, and one that is gone is noticed by
its requests.

A file has a server a line, with its group if it has one:

    10.0.0.1:8001
    10.0.0.2:8001 throughput        # a group, for the policy that chooses by concurrency
    dns:servers.example:8001        # every address of a name
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from tts.build.errors import ConfigError
from tts.build.input_files import Unreadable, read_text

RESOLVE_S = 5.0
"""How often a name is resolved."""
PREFIX = "dns:"
_NAME = re.compile(r"dns:(?P<host>[A-Za-z0-9._-]+):(?P<port>\d{1,5})")

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses, HOST:PORT, of a name and a port; raises OSError or UnicodeError."""


def is_well_formed(server: str) -> bool:
    """False for what begins as a name to resolve and is none; true of all else."""
    return not server.startswith(PREFIX) or _NAME.fullmatch(server) is not None


async def resolve(host: str, port: int) -> list[str]:
    """A name's addresses now, by the system's resolver, in a thread.

    Of one family, IPv4 where there is any: a server that has both would count as two.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    by_family: dict[int, set[str]] = {}
    for family, _, _, _, address in found:
        name = f"[{address[0]}]" if family == socket.AF_INET6 else address[0]
        by_family.setdefault(family, set()).add(f"{name}:{port}")
    addresses = by_family.get(socket.AF_INET) or by_family.get(socket.AF_INET6) or set()
    return sorted(addresses)


class Names:
    """What names stood for when they were last resolved."""

    def __init__(self, say: Callable[[str], None], resolve: Resolve = resolve) -> None:
        """`say` gets a line when a name does not resolve any more."""
        self._say = say
        self._resolve = resolve
        self._found: dict[str, list[str]] = {}
        self._tried: dict[str, float] = {}
        """When each was last tried, on the loop's clock."""
        self._failing: set[str] = set()

    async def expand(self, servers: Mapping[str, str]) -> dict[str, str]:
        """The group of each address: of those that are named, and those that names stand for."""
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


def read_replicas(file: Path) -> dict[str, str]:
    """The group of each address, empty for none; raises ConfigError."""
    try:
        text = read_text(file)
    except (OSError, Unreadable) as error:
        raise ConfigError(f"The servers in {file} cannot be read: {error}.") from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2 or words[0] in found or not is_well_formed(words[0]):
            raise ConfigError(
                f"{file}, line {number}: {line.strip()!r:.200} is not one address that is new, and "
                "perhaps a group.",
                hint="Write one server a line: HOST:PORT or dns:NAME:PORT, and perhaps its group.",
            )
        found[words[0]] = words[1] if len(words) == 2 else ""
    if not found:
        raise ConfigError(f"{file} names no server.", hint="Write one a line: HOST:PORT.")
    return found
