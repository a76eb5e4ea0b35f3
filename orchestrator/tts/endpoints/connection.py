"""What leads to both engines of a deployment, and what the gateway asks of a generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tts.build.spec import Role

from .base import GenerateCall, Generator, Verifier
from .streaming import NewTokens, StreamingGenerator


@runtime_checkable
class ReadingGenerator(Generator, Protocol):
    """A generator that knows how likely a prompt is."""

    async def read(self, call: GenerateCall) -> NewTokens:
        """The tokens of the prompt, with log-probabilities as the call asks for them.

        The first token's is NaN: nothing stands before it. Raises EndpointError.
        """


class Connection(Protocol):
    """A way to the engines of a server, or to the session's own."""

    @property
    def address(self) -> str:
        """Address of the engines, for people."""

    patience_s: float
    """How long a request is sent again; less where another server can take it."""

    def generator(
        self,
        role: Role = "generator",
        *,
        end_id: int,
        step_stop_words: Sequence[tuple[int, ...]] = (),
        end_stop_words: Sequence[tuple[int, ...]] = (),
    ) -> StreamingGenerator:
        """The generator, or a verifier that writes.

        `step_stop_words` end a step, `end_stop_words` end a sequence.
        """

    def verifier(self) -> Verifier:
        """The verifier."""

    async def reset_prefix_caches(self) -> bool:
        """Leave both engines as they were when they were ready; False if one holds requests.

        For engines of target openvino only. Raises EndpointError.
        """

    async def aclose(self) -> None:
        """End what runs on it."""
