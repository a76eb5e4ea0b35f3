"""Expansions on a generator: one request after the other, up to where confidence is lost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tts.base.errors import RequestRefused
from tts.endpoints.base import GenerateCall, Generator
from tts.endpoints.streaming import NewTokens, stream_of
from tts.prompting import Context
from tts.prompting.writing import Written, writing
from tts.search import ConfidenceWatch, Expand, Stop


async def prefill(generator: Generator, context: Context) -> None:
    """Have a problem's prompt in the generator's prefix cache."""
    await generator.generate(GenerateCall(context.generator_ids(()), 1, 0, 0.0, 1.0, True))


async def write(generator: Generator, context: Context, work: Expand) -> Written:
    """The thoughts of an expansion. Raises EndpointError."""
    watched = None
    if work.confidence:
        generator = watched = WatchedGenerator(generator, ConfidenceWatch(work.confidence))
    requests = writing(context, work)
    tokens: list[int] | None = None  # what starts it; it may take no request at all
    while True:
        try:
            call = requests.send(tokens)  # type: ignore[arg-type]
        except StopIteration as end:
            outcome: Written = end.value
            return watched.rated(outcome) if watched else outcome
        tokens = await generator.generate(call)


@dataclass(frozen=True, slots=True)
class WatchedGenerator:
    """A generator whose tokens a watch reads as they come; it ends chains without confidence."""

    generator: Generator
    watch: ConfidenceWatch

    async def generate(self, call: GenerateCall) -> list[int]:
        """The tokens up to where the chain loses its confidence; there the request is cancelled."""
        ids: list[int] = []
        if self.watch.cut:
            return ids
        call = replace(call, log_probs=True, streaming=self.watch.ends_chains)
        stream = stream_of(self.generator, call)
        try:
            async for new in stream:
                _require_log_probs(new)
                ids += new.ids[: self.watch.take(new.log_probs)]
                if self.watch.cut:
                    break
        finally:
            await stream.aclose()
        return ids

    def rated(self, text: Written) -> Written:
        """What was written, with the confidence of the whole at its end."""
        last = text.thoughts[-1]
        stop = Stop.CUT if self.watch.cut else last.stop
        last = replace(last, stop=stop, confidence=self.watch.weakest)
        return replace(text, thoughts=(*text.thoughts[:-1], last))


def _require_log_probs(new: NewTokens) -> None:
    """Raise RequestRefused for tokens without their log-probabilities."""
    if len(new.log_probs) != len(new.ids):
        raise RequestRefused(
            "The generator gives no log-probabilities of the tokens that it draws, which "
            "confidence-vote needs.",
            hint="Take a strategy that does without, such as majority-vote.",
        )
