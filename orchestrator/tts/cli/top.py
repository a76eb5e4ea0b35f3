"""`tts top`: watch a run that goes on in another terminal."""

from __future__ import annotations

from .options import RunGoingOnArgument


def top(
    run: RunGoingOnArgument = None,
) -> None:
    """Watch a run that goes on in another terminal: progress, accuracy, load, time left."""
    from tts.reports.live_watch import watch_run

    watch_run(run)
