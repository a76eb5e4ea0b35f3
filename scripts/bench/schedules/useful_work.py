"""The useful work of a run, sent again without its dependencies: what the engines can do at best.

Keep a run's calls with KeptGenerator and KeptVerifier, pick the useful ones, and time `send_all` of
`tts.lab.tuning.measure` on each engine alone. The larger time is a limit that no schedule of the
same work can beat.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tts.endpoints.base import GenerateCall, Generator, ScoreCall, Verifier, VerifierResult


@dataclass(frozen=True)
class KeptGenerator:
    """See endpoints.Generator; keeps the calls that were answered, in the order of sending."""

    inner: Generator
    calls: dict[int, GenerateCall] = field(default_factory=dict)
    """By seed, which names the node."""

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator."""
        self.calls.setdefault(call.seed, call)
        try:
            return await self.inner.generate(call)
        except BaseException:
            self.calls.pop(call.seed, None)
            raise

    def useful(self, seeds: Collection[int]) -> list[GenerateCall]:
        """The calls of these nodes."""
        return [call for seed, call in self.calls.items() if seed in seeds]


@dataclass(frozen=True)
class KeptVerifier:
    """See endpoints.Verifier; keeps the dialogues that were scored, in the order of sending."""

    inner: Verifier
    calls: dict[bytes, ScoreCall] = field(default_factory=dict)

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        key = call.input_ids.tobytes()
        self.calls.setdefault(key, call)
        try:
            return await self.inner.score(call)
        except BaseException:
            self.calls.pop(key, None)
            raise
