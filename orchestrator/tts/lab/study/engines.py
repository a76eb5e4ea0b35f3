"""The engines of a study's cells: one session at a time, cold for every run."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from types import TracebackType

from tts.build.errors import EndpointError, ServerError
from tts.build.spec import Deployment, EngineSpec
from tts.compat import Self
from tts.session import AsyncSession

from ..bench.observer import Observer
from .cells import RESTART_S, Engines
from .kv_memory import PairMemory, divided


def deployment_of(spec: Deployment, memory: PairMemory | None, engines: Engines) -> Deployment:
    """The deployment whose server a cell needs; `memory` is needed where the cell divides it."""
    if engines.share is not None:
        assert memory is not None
        spec = divided(spec, memory, engines.share)
    if not engines.reuse:
        spec = spec.model_copy(
            update={role: _without_reuse(each) for role, each in spec.engines().items()}
        )
    return spec


class StudyEngines:
    """Opens and closes sessions so that each run finds the engines it needs, with empty caches."""

    def __init__(self, spec: Deployment, memory: PairMemory | None, observer: Observer) -> None:
        self.start_s = RESTART_S
        """What a start takes: as expected at first, then as the last one took."""
        self._spec, self._memory, self._observer = spec, memory, observer
        self._opened = AsyncExitStack()
        self._session: AsyncSession | None = None
        self._engines: Engines | None = None
        self._said_warm = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._opened.aclose()

    async def cold(self, engines: Engines) -> AsyncSession:
        """A session with these engines whose caches are empty, if they can be emptied."""
        if self._session and self._engines == engines and await _emptied(self._session):
            return self._session
        await self._opened.aclose()
        began = time.monotonic()
        deployment = deployment_of(self._spec, self._memory, engines)
        self._session = await self._opened.enter_async_context(
            AsyncSession(deployment, say=self._observer.say, on_loading=self._observer.loading)
        )
        self._engines = engines
        if self._session.started_server:
            self.start_s = time.monotonic() - began
        elif not await _emptied(self._session) and not self._said_warm:
            self._said_warm = True
            self._observer.say("The server's caches hold what was computed before.")
        return self._session


async def _emptied(session: AsyncSession) -> bool:
    """Whether the caches of a session's engines could be emptied; no if its server is gone."""
    try:
        return await session.reset_prefix_caches()
    except (EndpointError, ServerError):
        return False


def _without_reuse(spec: EngineSpec) -> EngineSpec:
    return spec.model_copy(update={"kv_cache": spec.kv_cache.model_copy(update={"reuse": False})})
