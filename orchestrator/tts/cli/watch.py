"""`tts runs watch`: a run that goes on, on the terminal or in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .completion import runs
from .options import usable


def watch(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            callback=usable,
            autocompletion=runs,
            help="Folder of a run, or of a whole comparison.",
            show_default="the newest under runs/ that has not finished",
        ),
    ] = None,
    web: Annotated[
        bool,
        typer.Option("--web", help="Serve the growing report to browsers on this machine."),
    ] = False,
) -> None:
    """Watch a run that goes on in another terminal: progress, accuracy, load, time left."""
    from tts.reports.console import say
    from tts.reports.live_screen import watch_run
    from tts.reports.live_server import serve_run

    if web:
        serve_run(run, say)
    else:
        watch_run(run)
