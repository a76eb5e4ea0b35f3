"""The chain of checksums of a run: one number for all that was logged up to a place.

A line of the log ends with the field `crc`: the CRC-32 of all lines up to it, so that a changed
digit is found, and a line that was dropped, moved or is there twice. summary.json goes on with the
chain (`checks`), so that its `crc` stands for itself and for the log that it was made from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from zlib import crc32

from .files import open_file

CRC = "crc"
"""The field of a line, and of summary.json, that holds the checksum."""
_FIELD = b',"crc":"'
_TAIL = len(_FIELD) + len('01234567"}\n')
_CHUNK = 2**20


class Chain:
    """The checksum of a log's lines up to a place in it."""

    def __init__(self, crc: int = 0) -> None:
        """No line was written or read yet, or those with the checksum `crc`."""
        self._crc = crc

    def seal(self, event: bytes) -> bytes:
        """The next line: an event, encoded as a JSON object, with the checksum and the end."""
        body = event[:-1]
        self._crc = crc32(body, self._crc)
        return b'%b,"crc":"%08x"}\n' % (body, self._crc)

    def fits(self, line: bytes) -> bool:
        """Whether the next line, with its end, is the one that was written behind those before."""
        self._crc = crc32(line[:-_TAIL], self._crc)
        return _said(line[-_TAIL:]) == self._crc

    def sealed(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """A JSON object that is made of the lines so far, with the checksum of those and itself."""
        others = {name: value for name, value in data.items() if name != CRC}
        text = json.dumps(others, sort_keys=True, separators=(",", ":"))
        return {**others, CRC: f"{crc32(text.encode(), self._crc):08x}"}

    @classmethod
    def at_end(cls, log: Path) -> Self | None:
        """Behind the last line of a log, as that line states it; None if it does not end with one.
        An empty one if there is no log. Raises OSError.
        """
        try:
            with open_file(log) as lines:
                size = lines.seek(0, os.SEEK_END)
                if not size:
                    return cls()
                lines.seek(max(0, size - _TAIL))
                said = _said(lines.read(_TAIL))
        except FileNotFoundError:
            return cls()
        return None if said is None else cls(said)


def _said(tail: bytes) -> int | None:
    """The checksum at the end of a line; None if that is no end of a line."""
    if tail.startswith(_FIELD) and tail.endswith(b'"}\n'):
        with suppress(ValueError):
            return int(tail[len(_FIELD) : -3], 16)
    return None


def of_file(file: Path) -> str:
    """The checksum of a file's content, with its length; raises OSError."""
    crc = length = 0
    with open_file(file) as content:
        while chunk := content.read(_CHUNK):
            crc = crc32(chunk, crc)
            length += len(chunk)
    return f"{length} bytes, CRC-32 {crc:08x}"
