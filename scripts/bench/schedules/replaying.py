"""Engines that do the work of a recorded run, whatever their weights, while the recording answers.

Random weights of any size can so be driven by a search that made sense.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tts.build.errors import EndpointError
from tts.endpoints.base import (
    Connection,
    GenerateCall,
    Generator,
    ScoreCall,
    Verifier,
    VerifierResult,
)
from tts.engines import wire
from tts.runs.replay import Script
from tts.session.plan import Plan


@dataclass(frozen=True)
class ReplayPlan(Plan):
    """A plan whose engines only do the work."""

    script: Script = field(kw_only=True)
    """What answers in their place."""


def replaying(script: Script, connection: Connection) -> tuple[Generator, Verifier]:
    """Both engines: they do the work of a script, and the script gives the answers."""
    endless = connection.generator(end_id=wire.NO_END_ID, step_stop_words=())
    return ReplayGenerator(endless, script), ReplayVerifier(connection.verifier(), script)


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
