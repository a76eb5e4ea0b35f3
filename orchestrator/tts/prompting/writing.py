"""What the generator is asked to write for a node, and what its replies become. Pure.

    prompt ──► a step, or the rest of the chain

What an engine wrote beyond the place where a request should have ended is thrown away, so that
thoughts depend on the tokens alone. `thinking` has the requests of a model that thinks first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from tts.build.tokenizer import Ids
from tts.constraints import answer_constraint
from tts.endpoints.base import GenerateCall
from tts.endpoints.shaping import Shaping
from tts.engines.wire import Guide
from tts.search import Expand, Stop, Thought

from .context import Context
from .models import Models


@dataclass(frozen=True)
class Written:
    """What was written for a node."""

    thoughts: tuple[Thought, ...]
    tokens: int
    """Generated tokens, with those that were thrown away, without those that closed a thinking."""


Writing = Generator[GenerateCall, list[int], Written]
"""Yields calls, one after the other; each is sent its reply."""


def part_seed(seed: int, part: int) -> int:
    """The seed of a node's request number `part`, from 0 on, by the node's own seed."""
    if not part:
        return seed
    text = f"{seed}\x1f{part}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@dataclass
class Part:
    """Where a chain stands: the ids so far, and how many requests and tokens were spent on it."""

    ids: Ids
    end: int | None = None
    """Number of ids at which the node has more tokens than are of use; None: no number."""
    requests: int = 0
    tokens: int = 0

    @classmethod
    def behind(cls, ids: Ids, work: Expand) -> Part:
        """The first request, behind the ids of the parent."""
        return cls(ids, None if work.most is None else len(ids) + work.most + 1)

    def room(self, models: Models) -> int:
        """Tokens that may be written, by the engine's context and by what is of use."""
        room = models.room(self.ids)
        return room if self.end is None else min(room, self.end - len(self.ids))

    def seed(self, work: Expand) -> int:
        """The seed of the next request: the node's own for the first, others made from it."""
        return part_seed(work.seed, self.requests)

    def take(self, reply: Sequence[int]) -> None:
        """A request is answered."""
        self.requests += 1
        self.tokens += len(reply)


def call_for(
    part: Part,
    work: Expand,
    limit: int,
    *,
    at_step: bool,
    guide: Guide | None = None,
    stop_words: tuple[tuple[int, ...], ...] = (),
) -> GenerateCall:
    """The request for at most `limit` tokens behind a part."""
    sampling = work.sampling
    return GenerateCall(
        part.ids,
        limit,
        part.seed(work),
        sampling.temperature,
        sampling.top_p,
        at_step,
        guide,
        top_k=sampling.top_k,
        stop_words=stop_words,
        shaping=Shaping(min_p=sampling.min_p) if sampling.min_p else None,
    )


def answer(context: Context, work: Expand, part: Part, *, behind_thinking: bool = False) -> Writing:
    """One step of the answer, or the rest of the chain."""
    models = context.models
    limit = min(work.sampling.max_tokens, part.room(models))
    if limit < 1:
        return Written((Thought((), "", Stop.LENGTH),), part.tokens)
    guide = _guide(context, work, behind_thinking=behind_thinking)
    reply = yield call_for(part, work, limit, at_step=not work.whole, guide=guide)
    part.take(reply)
    truncated = len(reply) >= limit
    thoughts = models.thoughts(reply, truncated=truncated, whole=work.whole)
    return Written(thoughts, part.tokens)


def _guide(context: Context, work: Expand, *, behind_thinking: bool) -> Guide | None:
    """The grammar of the text below the parent, if the answer has a form."""
    sampling = work.sampling
    constraint = answer_constraint(
        sampling.answer_regex, sampling.answer_schema, context.models.step_delimiter
    )
    if constraint is None:
        return None
    return constraint.guide("" if behind_thinking else context.line(work.node[:-1]))
