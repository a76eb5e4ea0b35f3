"""The documents that commands print with `--json`, by command: for the reference and the tests.

The type of each is with its command. Fields are only added: programs read them. Sizes and times
have their unit in their name.
"""

from __future__ import annotations

from typing import Any

from tts.gateway.safety.keys import ApiKey
from tts.gateway.safety.usage import DailyUsage
from tts.runs.groups import ListedRun

from .doctor import DoctorDocument, LintDocument
from .gateway_records import LoggedRequest
from .json_output import ErrorDocument
from .listing import ListedDataset, ListedDeployment, ListedStrategy
from .plan import PlanDocument
from .report import ReportDocument
from .runs import BenchDocument, SolveDocument
from .score import ScoreDocument
from .simulate import PlacementsDocument, SimulateDocument
from .study import TuneDocument

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
