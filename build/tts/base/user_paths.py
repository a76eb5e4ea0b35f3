"""Paths and this user: what is at a path, which folders are private, and marks in the cache.

`Path.exists` and its kin raise PermissionError below a folder of another user that is closed, and
OSError for a name that is too long; here both become a sentence. A mark is what a process of this
user has checked and need not check again; a cache that cannot be written, or is not this user's,
keeps and tells nothing.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Literal

from . import paths
from .errors import ConfigError

PRIVATE = 0o700
Marked = Literal["tokenizers", "engines"]


def is_there(path: Path) -> bool:
    """Whether anything is at a path; raises ConfigError where this user may not look."""
    return _status(path) is not None


def is_folder(path: Path) -> bool:
    """Whether a folder is at a path; raises ConfigError where this user may not look."""
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_closed(folder: Path) -> bool:
    """Whether this user may not look into a folder that is there."""
    return not os.access(folder, os.X_OK)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        folders = reversed(path.absolute().parents)
        closed = next((folder for folder in folders if is_closed(folder)), path.parent)
        raise ConfigError(
            f"{path} cannot be looked at: you may not enter {closed}.",
            hint="Name a place of your own, or ask the owner of that folder to let you in. "
            "TTS_HOME moves what tts keeps by itself.",
        ) from error
    except (OSError, ValueError) as error:  # longer than a path may be, a NUL, links in a circle
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{str(path)!r:.300} can be no path: {why}.") from error


def is_own(folder: Path) -> bool:
    """Whether a folder is this user's own, or nothing is there yet; a link or /tmp is nobody's."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    shared = status.st_mode & stat.S_ISVTX
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not shared


def private_folder(folder: Path) -> Path:
    """Make a folder that nobody else can enter; raises ConfigError for a link, or another's."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=PRIVATE, exist_ok=True)
    if not is_own(folder):
        raise ConfigError(
            f"{folder} is not a folder of this user, so what is kept there would not be private.",
            hint="Remove it, or ask its owner to.",
        )
    if stat.S_IMODE(folder.lstat().st_mode) != PRIVATE:
        folder.chmod(PRIVATE)
    return folder


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
