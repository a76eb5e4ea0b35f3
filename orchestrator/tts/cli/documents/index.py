"""Every document by its command, and how its objects are called in the reference."""

from __future__ import annotations

from typing import Any

from tts.checks.first_run.outcomes import Outcome as FirstRunOutcome
from tts.gateway.safety import ApiKey, Usage
from tts.lab.bench.simulated_run import Advice as PlacementAdvice
from tts.lab.simulation.scenario import Outcome as SimulatedOutcome
from tts.lab.tuning.analysis import Level as LoadLevel
from tts.runs.listing import ListedRun

from .deployments import (
    DoctorDocument,
    LintDocument,
    PlacementsDocument,
    PlanDocument,
    SimulateDocument,
    TuneDocument,
)
from .errors import ErrorDocument
from .gateway import LoggedRequest
from .names import ListedDataset, ListedDeployment, ListedStrategy
from .runs import BenchDocument, ReportDocument, SolveDocument

DOCUMENTS: dict[str, Any] = {
    "tts solve": SolveDocument,
    "tts bench": BenchDocument,
    "tts report": ReportDocument,
    "tts runs list": list[ListedRun],
    "tts plan": PlanDocument,
    "tts lint": LintDocument,
    "tts doctor": DoctorDocument,
    "tts tune": TuneDocument,
    "tts simulate": SimulateDocument,
    "tts simulate --placements": PlacementsDocument,
    "tts gateway requests": list[LoggedRequest],
    "tts gateway keys list": list[ApiKey],
    "tts gateway usage": list[Usage],
    "tts list deployments": list[ListedDeployment],
    "tts list strategies": list[ListedStrategy],
    "tts list datasets": list[ListedDataset],
}
"""The type of each command's document; a list is one JSON array."""
ERROR = ErrorDocument

NAMES: dict[type, str] = {
    FirstRunOutcome: "FirstRunStep",
    SimulatedOutcome: "SimulatedRun",
    PlacementAdvice: "PlacementAdvice",
    LoadLevel: "LoadLevel",
}
"""Objects that have another name in the reference: two types would bear the same."""
