"""`tts top`: watch a run that goes on in another terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import usable


def top(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            callback=usable,
            help="Folder of a run, or of a whole comparison.",
            show_default="the newest under runs/ that has not finished",
        ),
    ] = None,
) -> None:
    """Watch a run that goes on in another terminal: progress, accuracy, load, time left."""
    from tts.reports.live_watch import watch_run

    watch_run(run)
