"""Records the engines' steps into a run's folder while the run goes on.

Of engines of target openvino on this machine every step is taken from the iteration logs that their
hosts write; of all others about one a second from the server's metrics. A separate thread records
them, so that neither a slow disk nor a slow server delays the run.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import Protocol

from tts.build.spec import Deployment, Role
from tts.engines.statistics import IterationLogFollower, Statistics
from tts.runs.engine_steps import EngineStep, StepLog, StepSession, of_iteration, of_metrics
from tts.runs.log import RunLog
from tts.serving.command.ports import Addresses
from tts.serving.repository.model_configs import iteration_logs

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
LAST_S = 1.0
"""Longest wait at the end for what the engines have not written yet."""
_POLL_S = 0.02
_ANSWER_S = 2.0


class StepSource(ABC):
    """Where the steps of a deployment's engines can be read."""

    sampled = True
    """Whether `read` gives samples rather than every step."""

    @abstractmethod
    def read(self) -> Mapping[Role, list[EngineStep]]:
        """The steps since the last call, oldest first; raises OSError."""

    def is_complete(self, until: float) -> bool:
        """Whether all known steps until that moment (monotonic clock) were read."""
        return True

    def close(self) -> None:  # noqa: B027 - samples have nothing to close
        """Nothing more is read."""


OpenSteps = Callable[[float], StepSource]
"""Opens a source; given when the session began, on the machine's monotonic clock."""


class Follower(Protocol):
    """A source of an engine's steps."""

    def read(self) -> Iterable[Statistics]:
        """The steps reported since the last call, oldest first; raises OSError."""

    def close(self) -> None:
        """Nothing more is read."""


class EveryStep(StepSource):
    """Every step, as the engines' followers report them."""

    sampled = False

    def __init__(
        self, deployment: Deployment, began: float, followers: Mapping[Role, Follower]
    ) -> None:
        self._began = began
        self._blocks = {role: spec.kv_cache.blocks for role, spec in deployment.engines().items()}
        self._followers = followers
        self._last: dict[Role, Statistics] = {}

    def read(self) -> Mapping[Role, list[EngineStep]]:
        """See StepSource."""
        return {role: self._read(role) for role in self._followers}

    def is_complete(self, until: float) -> bool:
        """See StepSource. An engine that has nothing left to do tells at once that it is so."""
        return all(last.monotonic >= until or not last.active for last in self._last.values())

    def close(self) -> None:
        """See StepSource."""
        for follower in self._followers.values():
            follower.close()

    def _read(self, role: Role) -> list[EngineStep]:
        steps: list[EngineStep] = []
        for step in self._followers[role].read():
            if step.monotonic < self._began:
                continue
            before, self._last[role] = self._last.get(role), step
            if before is None or step.monotonic != before.monotonic:  # else it is at rest since
                steps.append(of_iteration(step, began=self._began, blocks=self._blocks[role]))
        return steps


def logged_steps(deployment: Deployment, began: float) -> EveryStep:
    """Every step, from the iteration logs of the engine hosts on this machine."""
    logs = iteration_logs(deployment).items()
    return EveryStep(deployment, began, {role: IterationLogFollower(log) for role, log in logs})


class MetricSamples(StepSource):
    """The latest step of each engine, from the metrics of a server."""

    def __init__(self, address: str, began: float) -> None:
        self._address = address
        self._began = began
        self._seen: dict[Role, int | None] = {}

    def read(self) -> Mapping[Role, list[EngineStep]]:
        """See StepSource. Nothing of an engine that has made no step since the last call."""
        t = round(time.monotonic() - self._began, 6)
        now = of_metrics(self._fetch(), t=t)
        # what is there when the run begins was before it
        new = {
            engine: [step]
            for engine, step in now.items()
            if engine in self._seen and step.iteration != self._seen[engine]
        }
        self._seen = {engine: step.iteration for engine, step in now.items()}
        return new

    def _fetch(self) -> str:
        connection = HTTPConnection(self._address, timeout=_ANSWER_S)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode(errors="replace")
        except HTTPException as error:  # it has ended in the middle of its answer
            raise ConnectionError(f"no metrics come from {self._address}: {error!r}") from error
        finally:
            connection.close()


def steps_of(deployment: Deployment, addresses: Addresses, *, ours: bool) -> OpenSteps | None:
    """What a server's steps are read from, if anything; `ours`: this user started it here."""
    if ours and deployment.target == "openvino":
        return partial(logged_steps, deployment)
    return partial(MetricSamples, addresses.metrics) if addresses.metrics_port else None


@asynccontextmanager
async def recording_steps(log: RunLog, opening: OpenSteps | None) -> AsyncIterator[None]:
    """Record the engines' steps beside a run's log until the block ends, as far as possible."""
    try:
        source = opening(log.began) if opening else None
    except OSError as error:
        logger.warning("the engines' steps are not recorded: %s", error)
        source = None
    if source is None:
        yield
        return
    is_over = threading.Event()
    thread = threading.Thread(target=_record, args=(log, source, is_over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        await asyncio.to_thread(thread.join)


def _record(log: RunLog, source: StepSource, is_over: threading.Event) -> None:
    session = StepSession(session=log.time, sampled=source.sampled)
    files: dict[Role, StepLog] = {}

    def take() -> None:
        with suppress(ConnectionError, TimeoutError):  # a server that restarts
            for engine, steps in source.read().items():
                if steps:
                    if engine not in files:
                        files[engine] = StepLog(log.folder, engine, session)
                    files[engine].write(steps)

    try:
        take()
        while not is_over.wait(PERIOD_S):
            take()
        now = time.monotonic()
        take()
        while not source.is_complete(now) and time.monotonic() < now + LAST_S:
            time.sleep(_POLL_S)
            take()
    except OSError as error:  # a full disk ends the run by its log
        logger.warning("the engines' steps are recorded no further: %s", error)
    finally:
        source.close()
        for file in files.values():
            with suppress(OSError):
                file.close()
