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


class Generator(Protocol):
    """The engine that writes."""

    async def generate(self, call: GenerateCall) -> list[int]:
        """The new token ids, without the end-of-sequence token.

        Fewer than `max_new_tokens` unless the limit ended it. Raises EndpointError; cancelling
        the awaiting task cancels the request on the engine.
        """


class Verifier(Protocol):
    """The engine that scores."""

    async def score(self, input_ids: npt.NDArray[np.int32]) -> float:
        """Probability of the positive label after `input_ids`, in [0, 1]; raises EndpointError."""
