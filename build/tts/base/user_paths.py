"""The kind of thing at a path that a user names: a folder, something else, nothing, or not visible.

`Path.exists` and its kin raise PermissionError below a folder of another user that is closed, and
OSError for a name that is too long; here both become a sentence.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import ConfigError


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
        raise ConfigError(
            f"{path} cannot be looked at: you may not enter {_closed_above(path)}.",
            hint="Name a place of your own, or ask the owner of that folder to let you in. "
            "TTS_HOME moves what tts keeps by itself.",
        ) from error
    except (OSError, ValueError) as error:  # longer than a path may be, a NUL, links in a circle
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{str(path)!r:.300} can be no path: {why}.") from error


def _closed_above(path: Path) -> Path:
    """The outermost folder that this user may not enter on the way to a path."""
    folders = reversed(path.absolute().parents)
    return next((folder for folder in folders if is_closed(folder)), path.parent)
