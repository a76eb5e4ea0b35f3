"""What a search does without: generators that hand their tokens over while they write, and what
connects to an engine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from tts.build.spec import Role
from tts.engines.generate_request import Sequences

from .base import GenerateCall, Generator, Verifier


@dataclass(slots=True)
class NewTokens:
    """The new part of an output."""

    ids: list[int]
    log_probs: list[float] = field(default_factory=list)
    """Natural logarithms, one for each of `ids`, if the call asked for them."""
    final: bool = False
    """Whether the output ends here. The end of the iteration says so, too."""
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    """The likeliest tokens at the place of each, the likeliest first, if the call asked for them.
    """


@runtime_checkable
class StreamingGenerator(Generator, Protocol):
    """A generator that hands tokens over while it writes; `generate` follows from `stream`."""

    def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        """The new token ids as they come, one or several at a time.

        All together they are what `generate` returns. Raises EndpointError: what was given before
        stands, and a caller may go on after it elsewhere. Closing the iterator (`aclose`) cancels
        the request on the engine.
        """

    async def generate(self, call: GenerateCall) -> list[int]:
        """All that `stream` gives."""
        return [token async for new in self.stream(call) for token in new.ids]


def stream_of(generator: Generator, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
    """The stream of a generator; one that has only `generate` gives its output in one piece."""
    stream = getattr(generator, "stream", None)  # isinstance of a protocol takes 10 us
    return stream(call) if stream else _whole(generator, call)


async def _whole(generator: Generator, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
    yield NewTokens(await generator.generate(call), final=True)


class OutputEnds(NamedTuple):
    """What ends an output of ours: an id, and token sequences that are part of it."""

    id: int
    """The token that ends a sequence, which is no part of it; wire.NO_END_ID: none does."""
    step: Sequences = ()
    """Words at which a step ends."""
    sequence: Sequences = ()
    """Words at which a sequence ends, as at its end id."""

    def words(self, at_step: bool, own: Sequences, ignore_end: bool) -> Sequences:
        """All words of a call, whose `own` come first."""
        return (*own, *(() if ignore_end else self.sequence), *(self.step if at_step else ()))


@runtime_checkable
class ReadingGenerator(Generator, Protocol):
    """A generator that knows how likely a prompt is."""

    async def read(self, call: GenerateCall) -> NewTokens:
        """The tokens of the prompt, with log-probabilities as asked for; the first one's is NaN."""


class Connection(Protocol):
    """A way to the engines of a server, or to the session's own."""

    @property
    def address(self) -> str:
        """Address of the engines, for people."""

    def limit_patience(self, seconds: float) -> None:
        """Send requests again for so long only: another server can take them."""

    def generator(self, ends: OutputEnds, role: Role = "generator") -> StreamingGenerator:
        """The generator, or a verifier that writes."""

    def verifier(self) -> Verifier:
        """The verifier."""

    async def reset_prefix_caches(self) -> bool:
        """Empty the caches of engines of target openvino; False if one holds requests."""

    async def aclose(self) -> None:
        """End what runs on it."""
