"""The file that says which servers a gateway uses: one a line, with its group if it has one.

10.0.0.1:8001
10.0.0.2:8001 throughput        # a group, for the policy that chooses by concurrency
dns:servers.example:8001        # every address of a name
"""

from __future__ import annotations

from pathlib import Path

from tts.build.errors import ConfigError
from tts.build.input_files import Unreadable, read_text

from .names import is_well_formed


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
