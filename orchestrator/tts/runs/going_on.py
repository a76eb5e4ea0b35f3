"""Which runs go on: who works on a folder, the newest unfinished run, the one a group is at."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from tts.build.errors import RunError
from tts.build.input_files import Unreadable
from tts.build.user_paths import is_closed, is_folder, is_there

from .files import read_text
from .folder import CONFIG, EVENTS, GROUP, has_begun, has_finished
from .groups import COMPARISON, is_group, read_group
from .lock import LOCK, MOST_BYTES

_HOLDER = re.compile(r"process (\d{1,9}) on (.+)")


def is_worked_on(folder: Path) -> bool:
    """Whether a process holds a run folder, as far as is visible without trying its lock.

    A process of another host cannot be checked, so it counts as alive.
    """
    try:
        holder = _HOLDER.fullmatch(read_text(folder / LOCK, MOST_BYTES))
    except (OSError, Unreadable):
        return False
    if holder is None or holder[2] != socket.gethostname():
        return True
    return psutil.pid_exists(int(holder[1]))


def is_complete(folder: Path) -> bool:
    """Whether a run, or every run of a group, came to its end."""
    return has_finished(folder) or is_there(folder / COMPARISON)


def newest_unfinished(folder: Path) -> Path:
    """The one to look at of the runs and groups in a folder: worked on, else written to last.

    Raises RunError if there is none that has not finished.
    """
    unfinished = [
        run
        for run in (folder.iterdir() if is_folder(folder) else ())
        if not is_closed(run)  # another user's
        and (has_begun(run) or is_group(run) or is_worked_on(run))
        and not is_complete(run)
    ]
    if not unfinished:
        raise RunError(
            f"No run goes on in {folder}.", hint="Name the folder of a run that is elsewhere."
        )
    return max(unfinished, key=lambda run: (is_worked_on(run), _last_written(run)))


def current_run(folder: Path) -> Path:
    """The run itself, or of a group the one that it is at; raises RunError."""
    if not is_group(folder):
        return folder
    members = [folder / member.folder for member in read_group(folder)[1]]
    begun = [member for member in members if has_begun(member)]
    return next((run for run in begun if not has_finished(run)), [members[0], *begun][-1])


def _last_written(folder: Path) -> float:
    """When a run or a group of runs was last written to, in seconds; 0 if it is gone."""
    return max(_times(folder), default=0.0)


def _times(folder: Path) -> Iterator[float]:
    for name in (CONFIG, GROUP, EVENTS, f"*/{EVENTS}", LOCK):
        for file in folder.glob(name):
            try:
                yield file.stat().st_mtime
            except FileNotFoundError:  # it has just been removed
                continue
