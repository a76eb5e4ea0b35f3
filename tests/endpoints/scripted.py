"""A generator and a verifier without a model: deterministic, instant or shuffled in time.

Their answers depend on the request alone (ids and seed), like those of a real engine, so runs over
them can be compared node for node.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from tts.base.errors import RequestRefused
from tts.endpoints.base import GenerateCall, ScoreCall, VerifierResult
from tts.endpoints.streaming import NewTokens


@dataclass
class Calls:
    """The requests of the scripted pair in order: the ids (and seed) of each."""

    generated: list[tuple[bytes, int]] = field(default_factory=list)
    scored: list[bytes] = field(default_factory=list)


@dataclass
class ScriptedGenerator:
    """Writes steps of `words`, each followed by `delimiter`; `end` is the chance of ending.

    `words` are token sequences to draw from. With `jitter` each answer waits a random number of
    turns of the event loop, drawn from it, so that answers overtake one another.
    """

    words: Sequence[Sequence[int]]
    delimiter: Sequence[int]
    end: float = 0.25
    jitter: random.Random | None = None
    calls: Calls = field(default_factory=Calls)

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator; like an engine it refuses a request for nothing."""
        if call.max_new_tokens < 1 or not len(call.input_ids):
            raise RequestRefused(
                f"refused: {call.max_new_tokens} tokens after {len(call.input_ids)}"
            )
        self.calls.generated.append((call.input_ids.tobytes(), call.seed))
        await _wait(self.jitter)
        greedy = call.temperature == 0
        seed = zlib.crc32(call.input_ids.tobytes()) if greedy else call.seed
        choice = random.Random(seed)
        ids: list[int] = []
        while len(ids) < call.max_new_tokens:
            for _ in range(choice.randint(1, 3)):
                ids += choice.choice(self.words)
            if choice.random() < self.end:
                break
            ids += self.delimiter
            if call.stop_at_step:
                break
        return ids[: call.max_new_tokens]

    async def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        """See endpoints.StreamingGenerator; the log-probabilities follow from the tokens."""
        ids = await self.generate(call)
        yield NewTokens(ids, [-(token % 7) / 10 for token in ids], True)


@dataclass
class ScriptedVerifier:
    """Scores by a hash of the ids, in `steps` equal steps, so that ties are common."""

    steps: int = 5
    jitter: random.Random | None = None
    calls: Calls = field(default_factory=Calls)

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        ids = call.input_ids.tobytes()
        self.calls.scored.append(ids)
        await _wait(self.jitter)
        return VerifierResult(zlib.crc32(ids) % (self.steps + 1) / self.steps)


async def _wait(jitter: random.Random | None) -> None:
    for _ in range(jitter.randint(0, 20) if jitter else 0):
        await asyncio.sleep(0)
