"""What the driver asks of the two engines, wherever they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class GenerateCall:
    """One sample. `input_ids` is int32 [length]; greedy if `temperature` is 0."""

    input_ids: npt.NDArray[np.int32]
    max_new_tokens: int
    seed: int
    temperature: float
    top_p: float
    stop_at_step: bool
    """End at the step delimiter; else only at the end of sequence."""
    guide: str | None = None
    """A grammar (EBNF) that the new text follows; None: it is free."""


class Generator(Protocol):
    """The engine that writes."""

    async def generate(self, call: GenerateCall) -> list[int]:
        """The new token ids, without the end-of-sequence token.

        Fewer than `max_new_tokens` unless the limit ended it. Raises EndpointError; cancelling
        the awaiting task cancels the request on the engine.
        """


@dataclass(frozen=True, slots=True)
class ScoreCall:
    """A chain whose last step is to be scored: as token ids for a model, as text for a function.

    `input_ids` is the verifier's dialogue, int32 [length]; `steps` are stripped of white space.
    """

    input_ids: npt.NDArray[np.int32]
    question: str = ""
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifierResult:
    """What a verifier says of a chain's last step: `score` is within [0, 1]."""

    score: float


class Verifier(Protocol):
    """The engine that scores."""

    async def score(self, call: ScoreCall) -> VerifierResult:
        """Judge the last step of a chain; raises EndpointError."""
