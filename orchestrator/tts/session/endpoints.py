"""The endpoints of a run: the server's, or those of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tts.endpoints.base import GenerateCall, Generator, ScoreCall, Verifier, VerifierResult
from tts.endpoints.triton import TritonConnection, TritonGenerator, TritonVerifier
from tts.engines import wire
from tts.prompting import Models
from tts.runs.replay import Replay, ReplayGenerator, ReplayVerifier

from .replicas import EnginePair, Replicas

EndpointsOf = Callable[[EnginePair], tuple[Generator, Verifier]]
"""What a run asks of a replica."""


def own_endpoints(pair: EnginePair) -> tuple[Generator, Verifier]:
    """Its engines."""
    return pair.generator, pair.verifier


def triton_endpoints(models: Models, connection: TritonConnection) -> tuple[Generator, Verifier]:
    """Both engines of a server."""
    generator = TritonGenerator(
        connection,
        end_id=models.end_id,
        step_stop_words=models.step_stop_words,
        end_stop_words=models.end_stop_words,
    )
    return generator, TritonVerifier(connection)


def replaying(replay: Replay, connection: TritonConnection) -> tuple[Generator, Verifier]:
    """Both engines of a server: they do the work of a script, and the script answers."""
    endless = TritonGenerator(connection, end_id=wire.NO_END_ID, step_stop_words=())
    script = replay.script
    return ReplayGenerator(endless, script), ReplayVerifier(TritonVerifier(connection), script)


def endpoints_for(replay: Replay | None) -> EndpointsOf:
    """What a run asks: its replicas' engines, or a recording that keeps them as busy."""
    if replay is None:
        return own_endpoints

    def replayed(pair: EnginePair) -> tuple[Generator, Verifier]:
        assert pair.connection is not None  # a replay is of a server's engines
        return replaying(replay, pair.connection)

    return replayed


def routed_endpoints(replicas: Replicas) -> tuple[Generator, Verifier]:
    """Both engines of several servers: each request goes to one, and to another if that fails."""
    return _RoutedGenerator(replicas), _RoutedVerifier(replicas)


@dataclass(frozen=True)
class _RoutedGenerator:
    replicas: Replicas

    async def generate(self, call: GenerateCall) -> list[int]:
        return await self.replicas.call(lambda pair: pair.generator.generate(call))


@dataclass(frozen=True)
class _RoutedVerifier:
    replicas: Replicas

    async def score(self, call: ScoreCall) -> VerifierResult:
        return await self.replicas.call(lambda pair: pair.verifier.score(call))
