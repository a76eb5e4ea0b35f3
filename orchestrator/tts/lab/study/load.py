"""Throughput of each engine over the load in flight, with the requests of a run of the study."""

from __future__ import annotations

from pathlib import Path

from tts.build.spec import Role
from tts.runs.folder import Json
from tts.session import AsyncSession

from ..observer import Observer
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


class _Lines(Observer):
    """A tuning's observer that says one line for each engine."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def measuring(self, role: Role, measurements: int) -> None:
        """See Observer."""
        self._observer.say(f"Measuring the {role}'s throughput over load")
