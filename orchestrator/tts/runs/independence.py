"""Whether a part of a run's completions is what a smaller run would have been."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tts.strategies.catalog import known_strategy

WhyDependent = Literal["dependent", "early_stop", "limits"]
"""No part of the search is a smaller one; it stopped at a different number of completions for each
problem; its limits are those of whole problems."""


def why_dependent(
    strategy: str, parameters: Mapping[str, Any], limits: Mapping[str, Any] | None
) -> WhyDependent | None:
    """Why the parts of a run are no smaller runs; None if they are."""
    known = known_strategy(strategy)
    if known is None or known.independent is None:
        return "dependent"
    if limits:
        return "limits"
    return "early_stop" if parameters.get("early_stop") or parameters.get("agree") else None


def unit_size(strategy: str, parameters: Mapping[str, Any]) -> int:
    """How many completions an independent part of the search gives: a chain's one, or a subtree's.

    Part i holds the nodes whose first index, divided by this, is i.
    """
    known = known_strategy(strategy)
    subtrees = known is not None and known.independent == "subtrees"
    return int(parameters["beam_width"]) if subtrees else 1
