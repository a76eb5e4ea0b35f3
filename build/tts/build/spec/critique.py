"""stub"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .section import Count, Section
from .thinking import ThinkingSpec


class CritiqueSpec(Section):
    """How a verifier writes its critique, and how its verdict is read."""

    preset: Literal["judge", "thinkprm", "genprm", "r-prm"] = "judge"
    max_tokens: Count = 1024
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.6
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    samples: Count = 1
    thinking: ThinkingSpec = ThinkingSpec()
