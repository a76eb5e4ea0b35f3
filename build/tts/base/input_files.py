"""Reading files that users and checkpoints bring: bounded in size, refused in a sentence.

Nothing here knows what a file means. `Unreadable` says what is wrong with it in a phrase; the
reader that knows turns it into its own error and adds the place and the way on.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

MAX_JSON_BYTES = 100_000_000
"""The largest JSON file that is read: far above any tokenizer or run, far below memory."""
MAX_DEPTH = 64
"""The deepest JSON that is read: deeper than our files, far from the recursion limit."""
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Unreadable(ValueError):
    """A mistake in an input, as a phrase that follows its name and a colon."""


def is_file(path: Path) -> bool:
    """Whether a regular file is there; False, too, for a path that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # longer than a path may be, or with a NUL
        return False


def read_bytes(file: Path, most: int = MAX_JSON_BYTES) -> bytes:
    """The bytes of a regular file, up to `most`; raises Unreadable, or FileNotFoundError."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device might never end
            raise Unreadable("it is not a regular file")
        with file.open("rb") as stream:
            return read_open(stream, most)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def read_open(stream: BinaryIO, most: int) -> bytes:
    """The content of an open file of at most `most` bytes; raises Unreadable, and OSError."""
    size = os.fstat(stream.fileno()).st_size
    if size > most:
        raise Unreadable(f"it has {size:,} bytes; at most {most:,} are read")
    data = stream.read(most + 1)  # a file may grow, or not tell its size, as in /proc
    if len(data) > most:
        raise Unreadable(f"it has more than {most:,} bytes, which is the most that is read")
    return data


def as_text(data: bytes) -> str:
    """UTF-8, with or without a byte order mark; raises Unreadable naming the first wrong byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"it is not UTF-8: byte 0x{error.object[error.start]:02x} at offset {error.start:,}"
        ) from error


def read_text(file: Path, most: int = MAX_JSON_BYTES) -> str:
    """The text of a regular file, as `read_bytes` and `as_text`."""
    return as_text(read_bytes(file, most))


def parse_json(text: str, *, strict: bool = False) -> Any:
    """A JSON value that every later step can handle: not too deep, and all its texts are UTF-8.

    `strict` also refuses values that Python reads and JSON does not allow: NaN, numbers beyond a
    double's range, and fields given twice. Raises Unreadable.
    """
    try:
        value = json.loads(
            text,
            parse_constant=_no_constant if strict else None,
            object_pairs_hook=_no_repetition if strict else None,
        )
    except RecursionError as error:
        raise Unreadable(_TOO_DEEP) from error
    except json.JSONDecodeError as error:
        raise Unreadable(f"it is not JSON: {error.msg} at character {error.pos + 1:,}") from error
    except Unreadable:
        raise
    except ValueError as error:  # Python's bound on the digits of a number
        raise Unreadable("it holds a number of more than 4,300 digits") from error
    _check(value, numbers=strict, texts=bool(_ESCAPED_SURROGATE.search(text)))
    return value


_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"


def _no_constant(name: str) -> None:
    raise Unreadable(f"it holds {name}, which is no JSON number")


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise Unreadable(f"the field {name!r:.100} is given twice")
        fields[name] = value
    return fields


def _check(value: Any, *, numbers: bool, texts: bool) -> None:
    """Refuse what is nested too deeply and, where asked for, infinite numbers and broken texts."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        for item in level:
            if texts and isinstance(item, str):
                require_text(item)
            if numbers and isinstance(item, float) and not math.isfinite(item):
                raise Unreadable("it holds a number beyond the range of a double, such as 1e999")
        level = [
            part
            for item in level
            if isinstance(item, (dict, list))
            for part in ([*item, *item.values()] if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise Unreadable(_TOO_DEEP)


def require_text(text: str) -> None:
    r"""Raise Unreadable for half of a surrogate pair (`\ud800`), which no UTF-8 text can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        raise Unreadable(
            f"it holds half of a surrogate pair, \\u{half:04x}, which is no character"
        ) from error


def require_path(path: str) -> None:
    """Raise Unreadable for a path that no file can have: with a NUL, or too long."""
    require_text(path)
    if "\0" in path:
        raise Unreadable("a path must not hold a NUL character")
    if len(os.fsencode(path)) >= 4096 or any(len(os.fsencode(p)) > 255 for p in path.split("/")):
        raise Unreadable("a path may have 4,095 bytes, and each name in it 255")
    try:
        Path(path).expanduser()
    except RuntimeError as error:
        raise Unreadable(f"there is no home folder for {path.split('/')[0]!r}") from error
