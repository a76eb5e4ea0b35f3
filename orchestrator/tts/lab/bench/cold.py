"""Sessions whose engines are cold, one at a time: no run finds what an earlier one has warmed."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from types import TracebackType

from tts.build.errors import EndpointError, ServerError
from tts.build.spec import Deployment
from tts.compat import Self
from tts.session import AsyncSession

from ..observer import Observer
from .single_run import new_session


class ColdSessions:
    """Opens and closes sessions so that each run finds its deployment's engines, caches empty."""

    def __init__(self, observer: Observer, endpoints: tuple[str, ...] = ()) -> None:
        """`endpoints` are the servers to use; none: those of the deployment, or of this machine."""
        self.start_s: float | None = None
        """What the last start of a server took; None: there was none yet."""
        self.warm = False
        """Whether the session that was opened last found caches that could not be emptied."""
        self._observer = observer
        self._endpoints = endpoints
        self._opened = AsyncExitStack()
        self._session: AsyncSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._opened.aclose()

    async def cold(self, deployment: Deployment) -> AsyncSession:
        """A session with this deployment whose caches are empty, if they can be emptied."""
        session = self._session
        if session and session.deployment == deployment and await _emptied(session):
            self.warm = False
            return session
        await self._opened.aclose()
        began = time.monotonic()
        session = new_session(deployment, self._endpoints, self._observer)
        self._session = await self._opened.enter_async_context(session)
        if session.started_server:
            self.start_s = time.monotonic() - began
        self.warm = not (session.started_server or await _emptied(session))
        return session


async def _emptied(session: AsyncSession) -> bool:
    """Whether the caches of a session's engines could be emptied; no if its server is gone."""
    try:
        return await session.reset_prefix_caches()
    except (EndpointError, ServerError):
        return False
