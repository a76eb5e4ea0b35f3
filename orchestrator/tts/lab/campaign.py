"""Runs in folders of their own, one after the other, on engines that none has warmed for the next.

A benchmark is one run, or a list of them where strategies are compared; a study is another list;
and `tts tune` makes one run to take requests from.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tts.base.errors import EndpointError, ServerError, TtsError
from tts.build.spec import Deployment
from tts.session import AsyncSession, Result, RunProgress
from tts.session.event_loop import interruptible
from tts.session.run import OpenRun, complete

from .observer import Observer

TICK_S = 0.1
"""Seconds between updates of the observer."""


class Campaign(AsyncExitStack):
    """The engines of runs that follow one another, and how far the present run is."""

    def __init__(
        self,
        observer: Observer,
        endpoints: tuple[str, ...] = (),
        verifier: Any | None = None,
        *,
        cold: bool = True,
    ) -> None:
        """`endpoints` are the servers to use; none: those of the deployment, or of this machine.

        `verifier` scores instead of the deployment's. With `cold`, each run finds caches that are
        empty, if they can be emptied.
        """
        super().__init__()
        self.start_s: float | None = None
        """The time of the last start of a server; None before the first."""
        self.progress = RunProgress(0)
        """That of the run that was begun or continued last."""
        self._observer = observer
        self._servers: dict[str, Any] = {"endpoints": endpoints or None}
        if verifier is not None:
            self._servers["verifier"] = verifier
        self._cold = cold
        self._said_warm = False
        self._session: AsyncSession | None = None

    async def session(self, deployment: Deployment) -> AsyncSession:
        """A session with this deployment, which is open: the last one, where it will do."""
        session = self._session
        if session and session.deployment == deployment and await self._ready(session):
            return session
        await self.aclose()
        is_first = session is None
        began = time.monotonic()
        session = AsyncSession(
            deployment,
            **self._servers,
            say=self._observer.say,
            on_loading=self._observer.loading,
        )
        self._session = await self.enter_async_context(session)
        if is_first:  # what is there by now stays: a collection in a search is not to go through it
            gc.freeze()
        if session.started_server:
            self.start_s = time.monotonic() - began
        elif not await self._ready(session) and not self._said_warm:
            self._said_warm = True
            self._observer.say("The engines' caches hold what was computed before.")
        return session

    async def run(
        self,
        run: OpenRun,
        title: str,
        on_result: Callable[[Result], None] = lambda result: None,
    ) -> None:
        """Begin or continue a run; raises a TtsError.

        Where every problem of it is solved no engines are opened, and nothing of it is missing on
        disk afterwards.
        """
        progress = self.progress = RunProgress(len(run.plan.problems))
        if not run.left:
            complete(run)
            self._observer.say(f"{title}: every problem is solved already")
            return
        session = await self.session(run.plan.deployment)
        self._observer.began(progress, title)
        showing = asyncio.ensure_future(self._show(session, progress))
        try:
            async for result in session.carry_out(run, progress):
                on_result(result)
        finally:
            showing.cancel()
            self._observer.changed()
            self._observer.ended()

    async def _ready(self, session: AsyncSession) -> bool:
        """Whether a session's engines are as a run should find them; no if its server is gone."""
        try:
            return not self._cold or await session.reset_prefix_caches()
        except (EndpointError, ServerError):
            return False

    async def _show(self, session: AsyncSession, progress: RunProgress) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            progress.in_flight = session.in_flight
            self._observer.changed()


def carry_out(
    running: Coroutine[Any, Any, None],
    observer: Observer,
    folder: Path,
    done: Callable[[], str | None],
    way_on: str,
) -> None:
    """Run to the end, or until Ctrl-C. Raises a TtsError that says what is saved and the way on.

    `done` says how far it is, None as long as there is nothing to continue; `way_on` is the command
    that continues.
    """
    try:
        interruptible(running, observer.say)
    except TtsError as error:
        if (saved := done()) is not None:
            lines = (f"{saved} and saved in {folder}.", error.hint, f"Continue with: {way_on}")
            error.hint = "\n".join(line for line in lines if line)
        raise
