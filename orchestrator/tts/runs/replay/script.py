"""Answers that are decided without engines, and endpoints whose engines do the work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from tts.build.errors import EndpointError
from tts.build.tokenizer import Ids
from tts.endpoints.base import GenerateCall, Generator, ScoreCall, Verifier, VerifierResult
from tts.prompting import Models

_TAIL = 16  # tokens: more than spell any step delimiter


class Script(Protocol):
    """Answers that depend on the request alone, as a real engine's do."""

    def generate(self, call: GenerateCall) -> list[int]:
        """What the generator answers; see endpoints.Generator."""

    def ended(self, call: GenerateCall, ids: list[int]) -> bool:
        """Whether the answer `ids` was ended by the end-of-sequence token, which is not in it."""

    def score(self, input_ids: Ids) -> float:
        """What the verifier answers; see endpoints.Verifier."""


def chain_ended(models: Models, call: GenerateCall, ids: list[int]) -> bool:
    """`Script.ended` of answers in the language of `models`."""
    if len(ids) >= call.max_new_tokens:
        return False
    delimiter = models.deployment.generator.step_delimiter
    return not call.stop_at_step or delimiter not in models.generator.decode(ids[-_TAIL:])


@dataclass(frozen=True)
class ReplayGenerator:
    """See endpoints.Generator. `inner` must be one that nothing but the limit ends."""

    inner: Generator
    script: Script

    async def generate(self, call: GenerateCall) -> list[int]:
        """The script's answer, once the engine has generated as many tokens.

        An end-of-sequence token counts: an engine spends a step on it.
        """
        ids = self.script.generate(call)
        tokens = len(ids) + self.script.ended(call, ids)
        # a grammar could end the output; what matching it costs is not part of a replay
        work = replace(call, max_new_tokens=tokens, stop_at_step=False, guide=None)
        done = len(await self.inner.generate(work))
        if done != tokens:
            raise EndpointError(
                f"The generator answered {done} tokens to a replay that asked for exactly "
                f"{tokens}: it ends its output by itself."
            )
        return ids


@dataclass(frozen=True)
class ReplayVerifier:
    """See endpoints.Verifier."""

    inner: Verifier
    script: Script

    async def score(self, call: ScoreCall) -> VerifierResult:
        """The script's score, once the engine has computed its own."""
        await self.inner.score(call)
        return VerifierResult(self.script.score(call.input_ids))
