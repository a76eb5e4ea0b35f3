"""Commands that install the missing parts of an extra, for hints."""

from __future__ import annotations

import importlib.metadata
import re
import sys

_NAME = "tts-toolkit"


def how_to_install(*extras: str) -> str:
    """The command that installs what these extras need, for this Python.

    It names the packages rather than the extras, so that it is right for a checkout as well as for
    a wheel, wherever that came from, and leaves an editable install as it is.
    """
    needed = [f"'{each}'" for each in _requirements(extras)]
    return f"{sys.executable} -m pip install {' '.join(needed)}"


def _requirements(extras: tuple[str, ...]) -> list[str]:
    """What the metadata names for them, without markers; of sources alone: the extras."""
    try:
        requirements = importlib.metadata.requires(_NAME) or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    matches = [
        each.partition(";")[0].strip()
        for extra in extras
        for each in requirements
        if re.search(rf"""extra\s*==\s*["']{extra}["']""", each)
    ]
    return matches or [f".[{','.join(extras)}]"]
