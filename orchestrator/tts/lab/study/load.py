"""Throughput of each engine over the load in flight, with the requests of a run of the study."""

from __future__ import annotations

from pathlib import Path

from tts.build.spec import Role
from tts.runs.folder import Json
from tts.serving.server.loading import Loading
from tts.session import AsyncSession

from ..bench.observer import Observer
from ..tuning.analysis import analyse
from ..tuning.measure import Measured
from ..tuning.result import to_json
from ..tuning.tune import measure_engines, read_requests


async def measure_load(
    session: AsyncSession, run: Path, seconds: float, observer: Observer
) -> Json:
    """Both engines' throughput over load, in the form of tune.json; raises a TtsError."""
    recorded = read_requests(run, session.models)
    measured: list[Measured] = []
    measuring = measure_engines(session, recorded, seconds, measured, _Lines(observer))
    await session.watched(measuring)
    spec = session.deployment
    results = [analyse(each, spec) for each in measured]
    return to_json(spec, str(run), recorded, results)


class _Lines:
    """A tuning's observer that says one line for each engine."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def say(self, line: str) -> None:
        self._observer.say(line)

    def loading(self, loading: Loading) -> None:
        self._observer.loading(loading)

    def recording(self, problems: int) -> None:
        pass

    def solved(self) -> None:
        pass

    def measuring(self, role: Role, measurements: int) -> None:
        self._observer.say(f"Measuring the {role}'s throughput over load")

    def at(self, load: int, round_: int) -> None:
        pass
