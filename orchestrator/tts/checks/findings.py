"""What checks report: the form of findings, the look at a path, and what `tts doctor` sees."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tts.base.errors import TtsError
from tts.base.findings import Finding
from tts.build.spec import Deployment


def refused(
    error: TtsError, deployment: Deployment, where: str, why: str, fix: str = ""
) -> Finding:
    """The finding for something that would be refused later; `fix` if the error has no hint."""
    what = error.message.removeprefix(f"Deployment {deployment.name!r}: ").removesuffix(".")
    return Finding(what, where, why, error.hint or fix or "Change it in the deployment file.")


def doubtful(what: str, where: str, why: str, fix: str) -> Finding:
    """The warning about something that may be meant."""
    return Finding(what, where, why, fix, "warning")


def not_checked(what: str, where: str, why: str, fix: str) -> Finding:
    """The note for something that cannot be checked here."""
    return Finding(f"not checked: {what}", where, why, fix, "note")


def no_folder(path: Path) -> str | None:
    """The problem with a path that is not a folder."""
    kind = _kind_of(path)
    return None if kind in (None, "a folder") else f"is {kind}, where a folder is expected"


def no_file(path: Path, why: str, fix: str) -> Iterator[Finding]:
    """The finding for a path at which there is something else than a file."""
    if (kind := _kind_of(path)) not in (None, "a file"):
        yield Finding(f"is {kind}, where a file is expected", str(path), why, fix)


def _kind_of(path: Path) -> str | None:
    """The kind of a path, with its article; None if nothing is there."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(mode):
        return "a file"
    return "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"


State = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Observation:
    """One thing that was looked at."""

    what: str
    state: State
    """note: doubtful, and no reason to stop. missing: target openvino does not run without it."""
    found: str
    advice: str = ""
