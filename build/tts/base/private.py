"""Folders that only their owner may enter, whatever the umask of the process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import ConfigError

PRIVATE = 0o700


def is_own(folder: Path) -> bool:
    """Whether a folder is this user's, or nothing is there yet.

    A link belongs to no user; a folder with the sticky bit, such as /tmp, to all of them.
    """
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    shared = status.st_mode & stat.S_ISVTX
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not shared


def private_folder(folder: Path) -> Path:
    """Make a folder that nobody else can enter.

    Raises ConfigError if it is a link or belongs to another user, who could put files there.
    """
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
