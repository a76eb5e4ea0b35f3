"""Chains that end where the generator loses its confidence."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tts.base.errors import RequestRefused
from tts.endpoints.base import GenerateCall, Generator
from tts.endpoints.streaming import NewTokens, stream_of
from tts.prompting.writing import Written
from tts.search import ConfidenceWatch, Stop


@dataclass(frozen=True, slots=True)
class WatchedGenerator:
    """A generator whose tokens a watch reads as they come."""

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
