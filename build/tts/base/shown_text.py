"""What a terminal shows: lines for whoever waits, and texts of unknown origin."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Takes a line that says what goes on."""
_MARKS = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"},  # such as ␛
    **dict.fromkeys(range(0x7F, 0xA0), "\N{REPLACEMENT CHARACTER}"),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\N{REPLACEMENT CHARACTER}"),
}


def gib(size: int) -> str:
    """A size in bytes, for people."""
    return f"{size / 2**30:.2f} GiB"


def shortened(text: str, size: int) -> str:
    """A text of at most so many characters, up to the last word that fits."""
    if len(text) <= size:
        return text
    cut = text[:size]
    return f"{cut.rpartition(' ')[0] or cut}..."


def printable(text: str) -> str:
    """A text that cannot steer a terminal: control characters but tab and line's end are marks."""
    return text.translate(_MARKS)
