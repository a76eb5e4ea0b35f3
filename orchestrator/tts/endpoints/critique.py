"""A verifier that writes: critiques of a chain, and the verdicts in them.

    prompt ─┬─ sample 0 ─► critique ─► verdict ─┐
            ├─ sample 1 ─► critique ─► verdict ─┼─► their mean is the score
            └─ ...                              ┘

Each critique has a seed made of its prompt's token ids and its number, so equal chains have equal
critiques, whoever asks first. One without a verdict is written once more, with another seed; where
none of them has one, the score is `UNDECIDED`. It is an engine like the generator that does this:
cancelling a score ends its requests in the middle.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

import numpy as np

from tts.build.spec import VerifierRole
from tts.build.tokenizer import Ids
from tts.build.verifiers.critique import Critic
from tts.build.verifiers.prompted import Prompted

from .base import GenerateCall, Generator, ScoreCall, Verifier, VerifierResult

UNDECIDED = 0.5
"""The score of a chain whose critiques have no verdict."""
ATTEMPTS = 2
"""How often a critique is written, at most."""


@dataclass(frozen=True)
class _Critique:
    ids: list[int]
    verdict: float | None
    tokens: int
    """All that were generated for it, those of an attempt without a verdict included."""


@dataclass(frozen=True)
class WritingVerifier:
    """See endpoints.Verifier."""

    generator: Generator
    """The verifier's engine, which writes."""
    critic: Critic
    spec: VerifierRole
    labels: Verifier | None = None
    """The same engine, which gives the probabilities of labels; None: verdicts are in the text."""

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        samples = range(self.spec.critique.samples)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._sample(call, number)) for number in samples]
        written = [task.result() for task in tasks]
        verdicts = [each.verdict for each in written if each.verdict is not None]
        return VerifierResult(
            sum(verdicts) / len(verdicts) if verdicts else UNDECIDED,
            tokens=sum(each.tokens for each in written),
            no_verdict=len(written) - len(verdicts),
            critique=self.critic.tokenizer.decode(written[0].ids),
        )

    async def _sample(self, call: ScoreCall, number: int) -> _Critique:
        tokens = 0
        for attempt in range(ATTEMPTS if self.spec.critique.temperature else 1):
            seed = seed_of(call.input_ids, number * ATTEMPTS + attempt)
            ids, generated = await self._write(call.input_ids, seed)
            tokens += generated
            verdict = await self._verdict(call, ids)
            if verdict is not None:
                break
        return _Critique(ids, verdict, tokens)
