"""`tts top` and `tts watch`: a run that goes on, on the terminal or in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import usable

_Run = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN",
        callback=usable,
        help="Folder of a run, or of a whole comparison.",
        show_default="the newest under runs/ that has not finished",
    ),
]


def top(run: _Run = None) -> None:
    """Watch a run that goes on in another terminal: progress, accuracy, load, time left."""
    from tts.reports.live_screen import watch_run

    watch_run(run)


def watch(run: _Run = None) -> None:
    """Serve the report of a run that goes on, growing, to browsers on this machine."""
    from tts.reports.console import say
    from tts.reports.live_server import serve_run

    serve_run(run, say)
