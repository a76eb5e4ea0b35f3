"""Runs in folders of their own, one after the other, with one session for all of them.

A benchmark is one run, or a list of them where strategies are compared; a study is another list;
and `tts tune` makes one run to take requests from.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Any

from tts.base.errors import EndpointError, ServerError, TtsError
from tts.build.spec import Deployment
from tts.runs.folder import has_begun
from tts.runs.run import Run
from tts.session import AsyncSession, RunProgress
from tts.session.event_loop import interruptible
from tts.session.plan import Plan
from tts.session.run import OpenRun, complete, open_run
from tts.session.solver import Outbox

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
        self.observer = observer
        self.start_s: float | None = None
        """The time of the last start of a server; None before the first."""
        self.progress = RunProgress(0)
        """How far the run is that began or went on last."""
        self.finished: list[Run] = []
        """The runs that are complete."""
        self._servers: dict[str, Any] = {"endpoints": endpoints or None}
        if verifier is not None:
            self._servers["verifier"] = verifier
        self._cold = cold
        self._is_warm_reported = False
        self._session: AsyncSession | None = None

    async def session(self, deployment: Deployment) -> AsyncSession:
        """The open session with this deployment: the last one, unless its server is gone."""
        last = self._session
        if last and last.deployment == deployment and await self._reset(last):
            return last
        await self.aclose()
        began = time.monotonic()
        opening = AsyncSession(
            deployment, **self._servers, say=self.observer.say, on_loading=self.observer.loading
        )
        session = self._session = await self.enter_async_context(opening)
        if last is None:  # what is there by now stays: a collection in a search skips it
            gc.freeze()
        if session.started_server:
            self.start_s = time.monotonic() - began
        else:
            await self._reset(session)
        return session

    async def run(
        self, runs: AsyncGenerator[tuple[str, OpenRun], None], outbox: Outbox | None = None
    ) -> None:
        """Begin or continue runs, each with its title, as they come; raises a TtsError.

        For a run whose problems are all solved no engines are opened, and nothing of it is missing
        on disk afterwards. The session is closed at the end.
        """
        async with self, aclosing(runs):
            async for title, run in runs:
                progress = self.progress = RunProgress(len(run.plan.problems))
                if run.remaining:
                    session = await self.session(run.plan.deployment)
                    with observed(self.observer, session, progress, title):
                        finished = await session.execute(run, progress, outbox)
                else:
                    finished = complete(run)
                    self.observer.say(f"{title}: every problem is solved already")
                self.finished.append(finished)
                self.observer.finished(finished)

    async def _reset(self, session: AsyncSession) -> bool:
        """Empty a session's caches for the next run, if that can be; False if its server is gone.

        Where the caches stay as they are, the observer is told so once.
        """
        try:
            is_cold = not self._cold or await session.reset_prefix_caches()
        except (EndpointError, ServerError):
            return False
        if not is_cold and not self._is_warm_reported:
            self._is_warm_reported = True
            self.observer.say("The engines' caches hold what was computed before.")
        return True


@contextmanager
def observed(
    observer: Observer, session: AsyncSession, progress: RunProgress, title: str
) -> Iterator[None]:
    """Show an observer how far a session's work is until the block ends."""
    observer.began(progress, title)

    async def show() -> None:
        while True:
            await asyncio.sleep(TICK_S)
            progress.in_flight = session.in_flight
            observer.changed()

    showing = asyncio.ensure_future(show())
    try:
        yield
    finally:
        showing.cancel()
        observer.changed()
        observer.ended()


def carry_out(
    campaign: Campaign,
    plans: Awaitable[Mapping[str, tuple[Plan, Path]]],
    folder: Path,
    way_on: str,
    *,
    repair: bool = False,
    outbox: Outbox | None = None,
    saved: str | None = None,
) -> None:
    """Begin or continue runs: the plan and the folder of each, by title.

    `plans` may use the campaign's engines to make them. All runs are opened before the first is
    carried out, so that a damaged log is reported at once. `folder` holds them; `saved` says what
    an error leaves, in place of a count. Raises a TtsError that says how to go on.
    """
    runs: dict[str, OpenRun] = {}
    with ExitStack() as stack:

        async def one_by_one() -> AsyncGenerator[tuple[str, OpenRun], None]:
            openings = {
                title: open_run(
                    plan, where, resume=has_begun(where), repair=repair, say=campaign.observer.say
                )
                for title, (plan, where) in (await plans).items()
            }
            runs.update({title: stack.enter_context(each) for title, each in openings.items()})
            for title, run in runs.items():
                if len(runs) > 1 and run.remaining:
                    campaign.observer.say(title)
                yield title, run

        def state() -> str | None:
            progress = campaign.progress
            solved = f"{progress.done} of {progress.total} problems"
            if len(runs) < 2:  # one, or none is open yet
                return (saved or f"{solved} are solved") if progress.began else None
            words = f"{len(campaign.finished)} of {len(runs)} runs are finished"
            if progress.began and progress.done < progress.total:
                words += f", {solved} of the next are solved"
            return words

        with resumable(folder, state, way_on):
            interruptible(campaign.run(one_by_one(), outbox), campaign.observer.say)


@contextmanager
def resumable(folder: Path, state: Callable[[], str | None], way_on: str) -> Iterator[None]:
    """A block whose TtsError says what is saved in `folder`, and the command that continues.

    `state` says how far it is, None as long as there is nothing to continue.
    """
    try:
        yield
    except TtsError as error:
        if (saved := state()) is not None:
            lines = (f"{saved} and saved in {folder}.", error.hint, f"Continue with: {way_on}")
            error.hint = "\n".join(line for line in lines if line)
        raise
