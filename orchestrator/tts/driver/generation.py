"""Expansions on a generator: one request after the other, up to where confidence is lost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from tts.base.errors import EndpointTimeout, EndpointUnavailable, RequestRefused
from tts.endpoints.base import GenerateCall, Generator
from tts.endpoints.streaming import NewTokens, stream_of
from tts.prompting import Context
from tts.prompting.thinking import writing
from tts.prompting.writing import Written
from tts.search import ConfidenceWatch, Expand, Stop

MAX_BROKEN_STREAMS = 5
"""Streams of one request that may break off before its problem fails."""


async def prefill(generator: Generator, context: Context) -> None:
    """Have a problem's prompt in the generator's prefix cache."""
    await generator.generate(GenerateCall(context.generator_ids(()), 1, 0, 0.0, 1.0, True))


async def write(
    generator: Generator, context: Context, work: Expand, count: Callable[[int], None] | None = None
) -> Written:
    """The thoughts of an expansion. Raises EndpointError.

    `count` is called with the tokens of each request, also of one that is cancelled.
    """
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
        call.on_rest = count
        tokens = await generator.generate(call)
        if count:
            count(len(tokens))


@dataclass(slots=True)
class WatchedGenerator:
    """A generator whose tokens a watch reads as they come; it ends chains without confidence."""

    generator: Generator
    watch: ConfidenceWatch

    async def generate(self, call: GenerateCall) -> list[int]:
        """The tokens up to where the chain loses its confidence; there the request is cancelled.

        A stream that its server breaks off begins anew, with the same tokens, when the server has
        answered a request of one token, which waits for it as every request does.
        """
        if self.watch.cut:
            return []
        # a chain that ends early does not wait for what the engine has written behind its end
        call = replace(call, log_probs=True, streaming=self.watch.ends_chains, on_rest=None)
        for attempt in range(MAX_BROKEN_STREAMS + 1):
            watch = copy.deepcopy(self.watch)
            try:
                ids = await self._watched_by(watch, call)
                break
            except (EndpointUnavailable, EndpointTimeout):
                if attempt == MAX_BROKEN_STREAMS:
                    raise
            await self.generator.generate(replace(call, max_new_tokens=1, streaming=False))
        self.watch = watch
        return ids

    async def _watched_by(self, watch: ConfidenceWatch, call: GenerateCall) -> list[int]:
        ids: list[int] = []
        async with aclosing(stream_of(self.generator, call)) as stream:
            async for new in stream:
                _require_log_probs(new)
                ids += new.ids[: watch.take(new.log_probs)]
                if watch.cut:
                    break
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
