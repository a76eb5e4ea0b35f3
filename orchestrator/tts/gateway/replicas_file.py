"""The file that says which servers a gateway uses: read again when it changes, while it runs.

    10.0.0.1:8001
    10.0.0.2:8001 throughput    # a group, for the policy that chooses by concurrency

A server that is added is used once it has given a real answer. One that is taken out gets nothing
new, and is let go of when what it has is done: so servers are drained for upgrades.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tts.build.errors import ConfigError, TtsError
from tts.build.input_files import Unreadable, read_text
from tts.session.replicas import Replicas

LOOK_S = 0.5
RETRY_S = 2.0
"""After a server that was added has not answered."""


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
        if len(words) > 2 or words[0] in found:
            raise ConfigError(
                f"{file}, line {number}: {line.strip()!r:.200} is not one address that is new, and "
                "perhaps a group.",
                hint="Write one server a line: HOST:PORT or HOST:PORT GROUP.",
            )
        found[words[0]] = words[1] if len(words) == 2 else ""
    if not found:
        raise ConfigError(f"{file} names no server.", hint="Write one a line: HOST:PORT.")
    return found


async def follow(file: Path, replicas: Replicas, say: Callable[[str], None]) -> None:
    """Keep the replicas as the file says, for ever; what is wrong with it is said, and waits."""
    seen: tuple[int, int] | None = _version(file)
    leaving: dict[str, asyncio.Task[None]] = {}
    while True:
        await asyncio.sleep(LOOK_S)
        version = _version(file)
        if version == seen:
            continue
        seen = version
        try:
            wanted = read_replicas(file)
        except ConfigError as error:
            say(error.message)
            continue
        used = {pair.name for pair in replicas.pairs}
        for name in used - wanted.keys() - leaving.keys():
            say(f"{name} gets nothing new, and is let go of when it has nothing left")
            leaving[name] = asyncio.ensure_future(replicas.remove(name))
            leaving[name].add_done_callback(lambda _, name=name: leaving.pop(name))  # type: ignore[misc]
        for name in leaving.keys() & wanted.keys():  # it has come back before it was gone
            leaving[name].cancel()
            replicas.drain(name, False)
        for name in wanted.keys() - used:
            try:
                await replicas.add(name, wanted[name])
                say(f"{name} is used")
            except (TtsError, ValueError) as error:
                say(f"{name} is not used yet: {error}")
                seen = None
                await asyncio.sleep(RETRY_S)


def _version(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
