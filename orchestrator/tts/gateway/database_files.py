"""Whether the files of a SQLite database are still those that were opened.

SQLite's locks belong to a process and a file: whoever opens and closes a database's file beside
SQLite, in any way, drops the locks of the whole process, and the next program that uses it believes
itself alone. So the files are asked for by name, here and everywhere, and never opened.
"""

from __future__ import annotations

from pathlib import Path

Identity = tuple["tuple[int, int] | None", ...]


def identity(database: Path) -> Identity:
    """Device and inode of a database, its -wal and its -shm; None for what is not there."""
    return tuple(_file(database.with_name(database.name + end)) for end in ("", "-wal", "-shm"))


def _file(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
