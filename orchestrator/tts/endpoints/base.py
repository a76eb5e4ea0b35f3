"""The interface of the two engines, wherever they run.

`streaming` has generators that hand tokens over as they come. All may raise an EndpointError:
RequestRefused says that the request would be refused again, EndpointUnavailable and EndpointTimeout
that another server, or a later attempt, may answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tts.engines.wire import Guide

from .shaping import Shaping


@dataclass(slots=True)  # frozen it would take three times as long to make, once for each thought
class GenerateCall:
    """One sample, a value. `input_ids` is int32 [length]; greedy if `temperature` is 0."""

    input_ids: npt.NDArray[np.int32]
    max_new_tokens: int
    seed: int
    temperature: float
    top_p: float
    stop_at_step: bool
    """End at the step delimiter; else only at the end of sequence."""
    guide: Guide | None = None
    """What the new text obeys; None: it is free."""
    top_k: int = 0
    """How many of the likeliest tokens may be drawn; 0: any."""
    stop_words: tuple[tuple[int, ...], ...] = ()
    """The output also ends with any of these token sequences, which is part of it."""
    ignore_end: bool = False
    """Go on after the end of the sequence, up to `max_new_tokens`."""
    log_probs: bool = False
    """Whether `stream` gives the natural logarithm of each token's probability."""
    top_log_probs: int = 0
    """How many of the likeliest tokens it gives for each place, too."""
    streaming: bool = True
    """Whether `stream` gives tokens as they come, rather than all at the end."""
    shaping: Shaping | None = None
    """How the distribution is changed before a token is drawn; None: not at all."""
    on_rest: Callable[[int], None] | None = None
    """Called when the output is given up, with how many tokens it had that were not handed over, if
    the engine says so within `REST_S`; the cancelled wait lasts until then."""


REST_S = 2.0
"""How long an engine may take to say what it has written of an output that is given up."""


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
    text: str = ""
    """The chain as it was written, white space included: what a program judges."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What else the problem has (`Problem.extra`)."""


@dataclass(frozen=True, slots=True)
class VerifierResult:
    """A verifier's result for a chain's last step: `score` is within [0, 1]."""

    score: float
    tokens: int = 0
    """Tokens that it generated."""
    no_verdict: int = 0
    """Critiques without a verdict, or a candidate on which a command failed."""
    critique: str = ""
    """The first critique."""


class Verifier(Protocol):
    """The engine that scores."""

    async def score(self, call: ScoreCall) -> VerifierResult:
        """Judge the last step of a chain; raises EndpointError."""
