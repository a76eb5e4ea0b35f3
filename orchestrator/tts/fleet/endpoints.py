"""Both engines of a connection, the program's own in their place, or those of several servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np

from tts.base.errors import EndpointUnavailable
from tts.build.verifiers.untrained import Prompted
from tts.endpoints.base import GenerateCall, Generator, ScoreCall, Verifier, VerifierResult
from tts.endpoints.critique import CriteriaVerifier, WritingVerifier
from tts.endpoints.shaping import NO_PROMPTS, FieldRefused
from tts.endpoints.streaming import Connection, NewTokens, OutputEnds, ReadingGenerator, stream_of
from tts.prompting import Models

from .replicas import Attempts, EnginePair, Replicas

Own = tuple[Generator | None, Verifier | None]
"""The program's own endpoints, each instead of those of the servers."""
STREAM_ATTEMPTS = 4
"""Attempts at a sample, at least; one more than there are servers if these are more."""


def endpoints_on(
    models: Models, connection: Connection | None, own: Own = (None, None)
) -> tuple[Generator, Verifier]:
    """Both engines of a connection; those in `own` replace them, and may need none."""
    generator, verifier = own
    if generator and verifier:
        return generator, verifier
    assert connection is not None
    generator = generator or connection.generator(
        OutputEnds(models.end_id, models.step_stop_words, models.end_stop_words)
    )
    return generator, verifier or verifier_on(models, connection)


def verifier_on(models: Models, connection: Connection) -> Verifier:
    """The verifier of a connection, as the deployment has it judge."""
    spec = models.deployment.verifier_model
    if critic := models.critic:
        end_id, *more_ends = critic.tokenizer.eos_ids
        ends = OutputEnds(end_id, sequence=tuple((token,) for token in more_ends))
        writer = connection.generator(ends, "verifier")
        reader = connection.verifier() if critic.asks else None
        return WritingVerifier(writer, critic, spec, reader)
    verifier = connection.verifier()
    if isinstance(models.verifier, Prompted) and len(models.verifier.answers) > 1:
        return CriteriaVerifier(verifier, models.verifier)
    return verifier


async def routed_stream(
    replicas: Replicas,
    call: GenerateCall,
    key: str = "",
    on_server: Callable[[str], None] = lambda name: None,
) -> AsyncGenerator[NewTokens, None]:
    """The tokens of a sample, the last ones `final`. Raises EndpointError.

    Samples with the same `key` go to the same replica if possible; `on_server` is called with the
    name of the replica before each attempt. If its server goes away, a sample continues on another
    one after the tokens that it has; the tokens drawn there differ from those that the first server
    would have drawn; one with a guide, which says what the whole output is, then fails. Closing the
    generator early ends the sample on the engine.
    """
    attempts = Attempts(replicas, key, most=lambda: max(STREAM_ATTEMPTS, len(replicas) + 1))
    while call.max_new_tokens:
        ids: list[int] = []
        async with attempts.next() as pair:
            on_server(pair.name)
            async with aclosing(stream_of(pair.generator, call)) as sample:
                async for new in sample:
                    ids += new.ids
                    yield new
                    if new.final:
                        return
            break
        if call.guide and ids:
            raise EndpointUnavailable("The server went away in the middle of a guided sample.")
        prompt = np.concatenate((call.input_ids, np.asarray(ids, dtype=np.int32)))
        call = replace(call, input_ids=prompt, max_new_tokens=call.max_new_tokens - len(ids))
    yield NewTokens([], final=True)  # only the word that it ends here was missing


async def routed_reading(
    replicas: Replicas, call: GenerateCall, key: str, on_server: Callable[[str], None]
) -> NewTokens:
    """The tokens of a prompt with their log-probabilities; the rest as of `routed_stream`."""

    async def read(pair: EnginePair) -> NewTokens:
        on_server(pair.name)
        if not isinstance(pair.generator, ReadingGenerator):
            raise FieldRefused("echo", "this engine", NO_PROMPTS)
        return await pair.generator.read(call)

    return await replicas.call(read, key)


@dataclass(frozen=True)
class RoutedEndpoints:
    """Both engines of several servers: a request goes to one, or to another if that fails."""

    replicas: Replicas

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator."""
        return await self.replicas.call(lambda pair: pair.generator.generate(call))

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        return await self.replicas.call(lambda pair: pair.verifier.score(call))
