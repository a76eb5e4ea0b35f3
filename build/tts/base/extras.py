"""Commands that install the missing parts of an extra, for hints."""

from __future__ import annotations

import importlib.metadata
import re
import sys


def how_to_install(*extras: str) -> str:
    """The command that installs what these extras need, for this Python.

    It names the packages rather than the extras, so that it is right for a checkout as well as for
    a wheel, wherever that came from, and leaves an editable install as it is.
    """
    try:
        requirements = importlib.metadata.requires("tts-toolkit") or []
    except importlib.metadata.PackageNotFoundError:  # of sources alone
        requirements = []
    packages = [
        each.partition(";")[0].strip()
        for extra in extras
        for each in requirements
        if re.search(rf"""extra\s*==\s*["']{extra}["']""", each)
    ]
    needed = " ".join(f"'{each}'" for each in packages or [f".[{','.join(extras)}]"])
    return f"{sys.executable} -m pip install {needed}"
