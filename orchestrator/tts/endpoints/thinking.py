"""Thinking as requests write it: where it ends, and the request for what follows it. Pure.

    request ─► tokens ─┬─ the closing mark ──────────────────► closed: the answer follows
                       ├─ the limit of a budget ─► closing text ─► closed
                       └─ the end of the sequence, or another limit: no answer follows

It is a request apart from the answer's, because what ends a step or shapes an answer must not act
inside the thinking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tts.build.thinking import Thinking
from tts.build.tokenizer import Ids

from .base import GenerateCall


@dataclass(slots=True)
class ThinkingWriter:
    """The tokens of one thinking while they come, from one request or several."""

    thinking: Thinking
    limit: int
    """Most tokens that are generated for it."""
    closes: bool
    """Whether the closing text is written where the limit ends it."""
    ids: list[int] = field(default_factory=list)
    closed: bool = False
    """Whether it has ended and an answer follows."""

    def request(self, call: GenerateCall) -> GenerateCall:
        """The request that goes on with it; `call` asks for it and its answer together."""
        return replace(
            call,
            input_ids=extended(call.input_ids, self.ids),
            max_new_tokens=self.limit - len(self.ids),
            stop_at_step=False,
            guide=None,
            stop_words=self.thinking.stop_words,
            log_probs=False,
            top_log_probs=0,
            shaping=call.shaping and replace(call.shaping, min_tokens=0),
        )

    def take(self, tokens: Sequence[int]) -> int:
        """Take in the next tokens; how many belong to it: what is behind the mark does not."""
        closings = self.thinking.marks.closings
        reach = max(len(mark.encode()) for mark in closings)  # tokens that hold a mark at most
        tail = self.ids[-reach:]
        end = self.thinking.end([*tail, *tokens])
        size = len(tokens) if end is None else max(0, end - len(tail))
        self.ids += tokens[:size]
        self.closed = end is not None
        return size

    def finish(self, *, truncated: bool) -> None:
        """Note that its requests have ended; `truncated`: by the limit, where it may be closed."""
        if truncated and self.closes and not self.closed:
            self.ids += self.thinking.closing_ids
            self.closed = True

    def answer_request(self, call: GenerateCall, lead: Sequence[int] = ()) -> GenerateCall:
        """The request for what follows it; the answer begins with the tokens of `lead`."""
        return replace(
            call,
            input_ids=extended(call.input_ids, [*self.ids, *lead]),
            max_new_tokens=call.max_new_tokens - len(self.ids),
        )


def extended(prompt: Ids, tokens: Sequence[int]) -> Ids:
    """A prompt with these tokens behind it, int32 [length]."""
    return np.concatenate((prompt, np.asarray(tokens, dtype=np.int32)))
