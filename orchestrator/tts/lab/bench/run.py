"""Carrying out a run for a command: a session of its own, and progress for the observer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tts.build.errors import TtsError
from tts.session import AsyncSession, Result, RunProgress, Step
from tts.session.run import OpenRun, complete

from .observer import Observer

TICK_S = 0.1
"""How often the observer is told that the numbers may have changed."""


async def run_plan(
    session: AsyncSession,
    run: OpenRun,
    observer: Observer,
    progress: RunProgress,
    *,
    title: str = "problems",
    on_step: Callable[[Step], None] | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> None:
    """Begin or continue a run in a session, which is opened for it; raises a TtsError.

    Where every problem is solved already no session is opened. `progress` is kept up to date, so
    that the caller can say how far an interrupted run has come.
    """
    if complete_if_solved(run, observer, title):
        return
    async with session:
        await run_in(
            session, run, observer, progress, title=title, on_step=on_step, on_result=on_result
        )


def complete_if_solved(run: OpenRun, observer: Observer, title: str) -> bool:
    """Whether every problem of a run is solved already; then nothing of it is missing on disk."""
    if run.left:
        return False
    complete(run)
    observer.say(f"{title}: every problem is solved already")
    return True


async def run_in(
    session: AsyncSession,
    run: OpenRun,
    observer: Observer,
    progress: RunProgress,
    *,
    title: str,
    on_step: Callable[[Step], None] | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> None:
    """`run_plan` in a session that is open, and stays so."""
    observer.began(progress, title, run.folder)
    showing = asyncio.ensure_future(_show(session, progress, observer))
    try:
        async for result in session.carry_out(run, progress=progress, on_step=on_step):
            on_result(result)
    finally:
        showing.cancel()
        observer.changed()
        observer.ended()


async def _show(session: AsyncSession, progress: RunProgress, observer: Observer) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        progress.in_flight = session.in_flight
        observer.changed()


def with_way_on(error: TtsError, done: str, folder: Path) -> TtsError:
    """Add to an error's hint what is done and saved, and how to continue."""
    saved = f"{done} and saved in {folder}."
    way_on = f"Continue with: tts bench --resume {folder}"
    error.hint = "\n".join(part for part in (saved, error.hint, way_on) if part)
    return error
