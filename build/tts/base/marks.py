"""What this user's processes have found out, and need not find out again: marks in the cache.

A folder that cannot be written, or is not this user's, keeps and tells nothing.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from . import paths
from .errors import ConfigError
from .private import private_folder

Marked = Literal["tokenizers", "engines"]


def is_marked(kind: Marked, thing: str, state: str = "") -> bool:
    """Whether a thing was marked in this state, which is the last one that is kept of it."""
    with suppress(OSError, ConfigError):
        return _file(kind, thing).read_text(encoding="utf-8") == state
    return False


def mark(kind: Marked, thing: str, state: str = "") -> None:
    """Mark a thing in a state."""
    with suppress(OSError, ConfigError):
        _file(kind, thing).write_text(state, encoding="utf-8")


def _file(kind: Marked, thing: str) -> Path:
    return private_folder(paths.cache_dir() / kind) / hashlib.sha256(os.fsencode(thing)).hexdigest()
