"""What the generator is asked to write for a node, and what its replies become. Pure.

    plain      prompt ──────────────► a step, or the rest of the chain
    thinking   prompt ─► its thinking ─┬─ closed ──────────────────────► the answer's first step,
                                       ├─ budget spent: closing text ──► or all of it
                                       └─ ended, or cut off: no answer

Thinking that ends is written together with what follows it, in several requests one after the
other, because what ends a step or shapes an answer must not act inside the thinking. Each part has
a seed of its own; white space behind the closing mark belongs to the thinking. What an engine wrote
beyond the place where a request should have ended is thrown away, so that thoughts depend on the
tokens alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from tts.build.thinking import Thinking
from tts.build.tokenizer import Ids
from tts.constraints import answer_constraint
from tts.endpoints.base import GenerateCall
from tts.endpoints.shaping import Shaping
from tts.endpoints.thinking import ThinkingWriter, extended
from tts.engines.wire import Guide
from tts.search import Expand, Stop, Thought

from .context import Context
from .models import Models

MOST_BLANKS = 4
"""Requests for an answer's first step whose replies may be blank before one counts as it."""
MOST_PARTS = MOST_BLANKS + 2
"""Requests that one node takes, at most: two of them for a paragraph of its thinking."""


@dataclass(frozen=True)
class Written:
    """What was written for a node."""

    thoughts: tuple[Thought, ...]
    tokens: int
    """Generated tokens, with those that were thrown away, without those that closed a thinking."""


Writing = Generator[GenerateCall, list[int], Written]
"""Yields calls, one after the other; each is sent its reply."""


def writing(context: Context, work: Expand) -> Writing:
    """The requests that an expansion takes."""
    parent = work.node[:-1]
    thinking = context.models.thinking
    if thinking is None or (before := context.thought_tokens(parent)) is None:
        return _answer(context, work, _Part.behind(context.generator_ids(parent), work))
    return _think(context, work, thinking, before)


def part_seed(seed: int, part: int) -> int:
    """The seed of a node's request number `part`, from 0 on, by the node's own seed."""
    if not part:
        return seed
    text = f"{seed}\x1f{part}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@dataclass
class _Part:
    """Where a chain stands: the ids so far, and how many requests and tokens were spent on it."""

    ids: Ids
    end: int | None = None
    """Number of ids at which the node has more tokens than are of use; None: no number."""
    requests: int = 0
    tokens: int = 0

    @classmethod
    def behind(cls, ids: Ids, work: Expand) -> _Part:
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


def _call(
    part: _Part,
    work: Expand,
    limit: int,
    *,
    at_step: bool,
    guide: Guide | None = None,
    stop_words: tuple[tuple[int, ...], ...] = (),
) -> GenerateCall:
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


def _answer(
    context: Context, work: Expand, part: _Part, *, behind_thinking: bool = False
) -> Writing:
    """One step of the answer, or the rest of the chain."""
    models = context.models
    limit = min(work.sampling.max_tokens, part.room(models))
    if limit < 1:
        return Written((Thought((), "", Stop.LENGTH),), part.tokens)
    guide = _guide(context, work, behind_thinking=behind_thinking)
    reply = yield _call(part, work, limit, at_step=not work.whole, guide=guide)
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


def _think(context: Context, work: Expand, thinking: Thinking, before: int) -> Writing:
    """Thinking, `before` of whose tokens the chain has already, and what follows it."""
    models, sampling = context.models, work.sampling
    part = _Part.behind(context.generator_ids(work.node[:-1]), work)
    room = models.room(part.ids)
    budget = sampling.thinking_budget or thinking.budget
    most = sampling.max_tokens if budget is None else budget - before - len(thinking.closing_ids)
    limit = min(most, part.room(models))
    if work.whole and budget is None and not (sampling.answer_regex or sampling.answer_schema):
        reply = yield _call(part, work, limit, at_step=False)  # nothing acts on its parts
        part.take(reply)
        ids, truncated = models.without_end(reply, truncated=len(reply) >= limit)
        if (end := thinking.end(ids)) is None:
            stop = Stop.LENGTH if truncated else Stop.END
            return Written((_thought(models, ids, stop),), part.tokens)
        rest = models.thoughts(ids[end:], truncated=truncated, whole=True)
        return _joined(models, ids[:end], rest, part)
    start = part.ids
    fits = most + len(thinking.closing_ids) < room  # and a token of the answer
    writer = ThinkingWriter(thinking, limit, closes=budget is not None and fits)
    stop = yield from _write_thinking(models, work, part, writer)
    writer.finish(truncated=stop is Stop.LENGTH)
    if not writer.closed:
        return Written((_thought(models, writer.ids, stop),), part.tokens)
    for _ in range(MOST_BLANKS):
        part.ids = extended(start, writer.ids)
        answer = yield from _answer(context, work, part, behind_thinking=True)
        outcome = _joined(models, writer.ids, answer.thoughts, part)
        if len(outcome.thoughts) > 1:
            return outcome
        writer.ids = list(outcome.thoughts[0].token_ids)
    return Written((*outcome.thoughts, Thought((), "", Stop.END)), part.tokens)


def _write_thinking(
    models: Models, work: Expand, part: _Part, writer: ThinkingWriter
) -> Generator[GenerateCall, list[int], Stop]:
    """Requests up to the end of the thinking or, in steps, of a paragraph; why they end."""
    start, thinking = part.ids, writer.thinking
    least = 0 if work.whole else thinking.paragraph or 0
    while (size := len(writer.ids)) < writer.limit:
        at_step = 0 < least <= size
        limit = (min(writer.limit, least) if size < least else writer.limit) - size
        part.ids = extended(start, writer.ids)
        reply = yield _call(part, work, limit, at_step=at_step, stop_words=thinking.stop_words)
        part.take(reply)
        new, truncated = models.without_end(reply, truncated=len(reply) >= limit)
        writer.take(new)
        if writer.closed:
            return Stop.STEP
        if at_step:
            (step,) = models.thoughts(new, truncated=truncated, whole=False)
            if step.stop is Stop.STEP:
                del writer.ids[size + len(step.token_ids) :]
                return Stop.STEP
        if not truncated:
            return Stop.END
    return Stop.LENGTH


def _joined(models: Models, ids: Sequence[int], answer: Sequence[Thought], part: _Part) -> Written:
    """Closed thinking, with the white space behind it, and what follows."""
    blank = 0
    while blank < len(answer) and answer[blank].blank and answer[blank].stop is Stop.STEP:
        ids = [*ids, *answer[blank].token_ids]
        blank += 1
    return Written((_thought(models, ids, Stop.STEP), *answer[blank:]), part.tokens)


def _thought(models: Models, ids: Sequence[int], stop: Stop) -> Thought:
    return Thought(tuple(ids), models.generator.decode(ids), stop, thinking=True)
