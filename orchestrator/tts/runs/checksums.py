"""Checksums in a run folder: of each line of a log, of a JSON file, of a whole file.

A line of the log ends with the field `crc`: the CRC-32 of all lines up to it, so that a changed
digit is found, and a line that was dropped, moved or is there twice. A JSON file ends with the
field `crc32`, that of its other fields.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from .files import open_file

OWN = "crc32"
"""The field of a JSON file that holds its checksum."""
_FIELD = b',"crc":"'
_TAIL = len(_FIELD) + len('01234567"}\n')
_CHUNK = 2**20


class Chain:
    """The checksum of a log's lines up to a place in it."""

    def __init__(self) -> None:
        """No line was written or read yet."""
        self._crc = 0

    def seal(self, event: bytes) -> bytes:
        """The next line: an event, encoded as a JSON object, with the checksum and the end."""
        body = event[:-1]
        self._crc = crc32(body, self._crc)
        return b'%b,"crc":"%08x"}\n' % (body, self._crc)

    def fits(self, line: bytes) -> bool:
        """Whether the next line, with its end, is the one that was written behind those before.

        After a damaged line, the next one is checked against the checksum that the damaged one
        states.
        """
        tail = line[-_TAIL:]
        if not (tail.startswith(_FIELD) and tail.endswith(b'"}\n')):
            self._crc = crc32(line, self._crc)
            return False
        self._crc = crc32(line[:-_TAIL], self._crc)
        said = tail[len(_FIELD) : -3]
        if said == b"%08x" % self._crc:
            return True
        with suppress(ValueError):
            self._crc = int(said, 16) & 0xFFFFFFFF
        return False

    @classmethod
    def of_file(cls, log: Path) -> Chain:
        """The state from which a log's next line continues; the initial one if there is no log.
        Raises OSError.
        """
        chain = cls()
        with suppress(FileNotFoundError), open_file(log) as lines:
            for line in lines:
                chain.fits(line)
        return chain


def with_checksum(data: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with the checksum of its other fields."""
    return {**data, OWN: _of_object(data)}


def without_checksum(data: dict[str, Any]) -> tuple[dict[str, Any], bool | None]:
    """The fields of a JSON object, and whether they fit its checksum; None if it has none."""
    others = {name: value for name, value in data.items() if name != OWN}
    return others, _of_object(others) == data[OWN] if OWN in data else None


def of_file(file: Path) -> str:
    """The checksum of a file's content, with its length; raises OSError."""
    crc = length = 0
    with open_file(file) as content:
        while chunk := content.read(_CHUNK):
            crc = crc32(chunk, crc)
            length += len(chunk)
    return f"{length} bytes, CRC-32 {crc:08x}"


def _of_object(data: dict[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return f"{crc32(text.encode()):08x}"
