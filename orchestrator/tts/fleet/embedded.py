"""The engines of a session that has no server: two processes of its own, which end with it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import msgspec

from tts.base import paths
from tts.base.errors import CheckpointError, ConfigError
from tts.base.machine_limits import usable_cores
from tts.build.openvino.memory import require_memory, shortage
from tts.build.spec import Deployment, Role
from tts.endpoints.embedded import EmbeddedConnection, EmbeddedEngine
from tts.engines import wire
from tts.engines.engine_messages import Open
from tts.engines.loading import COMPILING, OPEN, READING, Stage, read_weights
from tts.engines.opening import opening_of
from tts.engines.statistics import Statistics
from tts.serving.server.triton_log import Loading

from .connecting import require_engines
from .engine_steps import EveryStep, OpenSteps
from .server import in_loop

MODELS: Mapping[Role, str] = {"generator": wire.GENERATOR, "verifier": wire.PRM}
"""The models as errors name them, whatever serves them."""


@asynccontextmanager
async def embedded_engines(
    deployment: Deployment,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
    roles: Collection[Role] = ("generator", "verifier"),
) -> AsyncIterator[tuple[EmbeddedConnection, OpenSteps]]:
    """Open the engines of roles while the block lasts, and what can be read of their steps.

    A model of both roles is one engine. `on_loading` is called with their progress.

    Raises ConfigError for a target whose engines Triton runs, or a machine whose memory cannot
    hold the pair; BuildError for engines that are missing or out of date; EngineError.
    """
    if deployment.target == "tensorrt":
        raise ConfigError(
            f"Deployment {deployment.name} is of target tensorrt, whose engines run under Triton.",
            hint="Leave out server.kind (or --server): embedded is for openvino.",
        )
    await asyncio.to_thread(require_engines, deployment, (), in_loop(say))
    with suppress(CheckpointError):  # refused with the engines, by what is wrong with it
        if short := shortage(require_memory(deployment)):
            say(short)
    began = time.monotonic()
    models = {
        role: MODELS[role]
        for role in deployment.engines()
        if role in roles or deployment.shares_engine
    }
    stages = {role: Stage(model, READING) for role, model in models.items()}

    def report(role: Role, doing: str, fraction: float | None = None) -> None:
        stages[role] = Stage(MODELS[role], doing, fraction)
        on_loading(Loading(time.monotonic() - began, dict(stages)))

    async with AsyncExitStack() as stack:
        alone, timeout_s = len(models) == 1, deployment.answer_timeout_s
        engines = {
            role: EmbeddedEngine(model, _opening(deployment, role, alone=alone), timeout_s)
            for role, model in models.items()
        }
        connection = EmbeddedConnection(engines)
        stack.push_async_callback(connection.aclose)
        opening = [
            asyncio.ensure_future(_open(deployment, role, engine, partial(report, role)))
            for role, engine in engines.items()
        ]
        try:
            await asyncio.gather(*opening)
        finally:
            for task in opening:
                task.cancel()
            await asyncio.wait(opening)
        say(f"Engines of {deployment.name} open, {time.monotonic() - began:.1f} s")

        def every_step(began: float) -> EveryStep:
            followers = {role: _ReportedSteps(each) for role, each in engines.items()}
            return EveryStep(deployment, began, followers)

        yield connection, every_step


def _opening(deployment: Deployment, role: Role, *, alone: bool) -> Open:
    """How an engine is opened: a verifier without a generator beside it has every core.

    Scores are rounded far above what threads change of them; a generator's tokens are not.
    """
    opening = opening_of(deployment, role)
    if alone and role == "verifier" and deployment.engines()[role].threads is None:
        return msgspec.structs.replace(opening, threads=usable_cores())
    return opening


async def _open(
    deployment: Deployment, role: Role, engine: EmbeddedEngine, report: Callable[..., None]
) -> None:
    given_up = threading.Event()
    report_part = in_loop(partial(report, READING))

    def read() -> None:
        for weights in paths.engine_dir(deployment.name, role).glob("*.bin"):
            read_weights(weights, report_part, lambda: not given_up.is_set())

    report(READING, 0.0)
    try:
        await asyncio.to_thread(read)
    finally:
        given_up.set()  # a thread is not cancelled with the one who waits for it
    report(COMPILING)
    await engine.open()
    report(OPEN)


class _ReportedSteps:
    """The steps that an engine of this process reports, until it is closed; see Follower."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine = engine
        self._steps: deque[Statistics] = deque()
        engine.listeners.append(self._steps.append)

    def read(self) -> Iterator[Statistics]:
        while self._steps:  # the event loop goes on to append to it
            yield self._steps.popleft()

    def close(self) -> None:
        self._engine.listeners.remove(self._steps.append)
