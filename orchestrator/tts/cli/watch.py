"""`tts watch`: the report of a run that goes on, in a browser."""

from __future__ import annotations

from .options import RunGoingOnArgument


def watch(
    run: RunGoingOnArgument = None,
) -> None:
    """Serve the report of a run that goes on, growing, to browsers on this machine."""
    from tts.reports.console import say
    from tts.reports.live_server import serve_run

    serve_run(run, say)
