"""Every document by its command."""

from __future__ import annotations

from typing import Any

from tts.gateway.safety.keys import ApiKey
from tts.gateway.safety.usage import DailyUsage
from tts.runs.groups import ListedRun

from ..json_output import ErrorDocument
from ..listing import ListedDataset, ListedDeployment, ListedStrategy
from .deployments import (
    DoctorDocument,
    LintDocument,
    PlacementsDocument,
    PlanDocument,
    SimulateDocument,
    TuneDocument,
)
from .gateway import LoggedRequest
from .runs import BenchDocument, ReportDocument, SolveDocument
from .scores import ScoreDocument

DOCUMENTS: dict[str, Any] = {
    "tts solve": SolveDocument,
    "tts bench": BenchDocument,
    "tts score": ScoreDocument,
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
    "tts gateway usage": list[DailyUsage],
    "tts list deployments": list[ListedDeployment],
    "tts list strategies": list[ListedStrategy],
    "tts list datasets": list[ListedDataset],
}
"""The type of each command's document; a list is one JSON array."""
ERROR = ErrorDocument
