"""What the generator is asked to write for a node, and what its replies become. Pure.

    prompt ──► a step, or the rest of the chain

What an engine wrote beyond the place where a request should have ended is thrown away, so that
thoughts depend on the tokens alone. `thinking` has the requests of a model that thinks first.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from tts.build.tokenizer import Ids
from tts.constraints import answer_constraint
from tts.endpoints.base import GenerateCall
from tts.endpoints.shaping import Shaping
from tts.engines.wire import Guide
from tts.search import Expand, Stop, Thought

from .context import Context


@dataclass(frozen=True)
class Written:
    """What was written for a node."""

    thoughts: tuple[Thought, ...]
    tokens: int
    """Generated tokens, with those that were thrown away, without those that closed a thinking."""


Writing = Generator[GenerateCall, list[int], Written]
"""Yields calls, one after the other; each is sent its reply."""


def call_for(
    work: Expand,
    ids: Ids,
    seed: int,
    limit: int,
    *,
    at_step: bool,
    guide: Guide | None = None,
    stop_words: tuple[tuple[int, ...], ...] = (),
) -> GenerateCall:
    """The request for at most `limit` tokens behind these ids."""
    sampling = work.sampling
    return GenerateCall(
        ids,
        limit,
        seed,
        sampling.temperature,
        sampling.top_p,
        at_step,
        guide,
        top_k=sampling.top_k,
        stop_words=stop_words,
        shaping=Shaping(min_p=sampling.min_p) if sampling.min_p else None,
    )


def answer(
    context: Context, work: Expand, ids: Ids, seed: int, *, behind_thinking: bool = False
) -> Writing:
    """One step of the answer, behind these ids, or the rest of the chain."""
    models = context.models
    limit = min(work.sampling.max_tokens, room(context, work, ids))
    if limit < 1:
        return Written((Thought((), "", Stop.LENGTH),), 0)
    guide = _guide(context, work, behind_thinking=behind_thinking)
    reply = yield call_for(work, ids, seed, limit, at_step=not work.whole, guide=guide)
    thoughts = models.thoughts(reply, truncated=len(reply) >= limit, whole=work.whole)
    return Written(thoughts, len(reply))


def room(context: Context, work: Expand, ids: Ids) -> int:
    """Tokens that may be written behind these: by the engine's context, and by what is of use."""
    fitting = context.models.room(ids)
    if work.most is None:
        return fitting
    return min(fitting, len(context.generator_ids(work.node[:-1])) + work.most + 1 - len(ids))


def _guide(context: Context, work: Expand, *, behind_thinking: bool) -> Guide | None:
    """The grammar of the text below the parent, if the answer has a form."""
    sampling = work.sampling
    constraint = answer_constraint(
        sampling.answer_regex, sampling.answer_schema, context.models.step_delimiter
    )
    if constraint is None:
        return None
    return constraint.guide("" if behind_thinking else context.line(work.node[:-1]))
