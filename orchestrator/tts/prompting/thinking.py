"""The requests of an expansion where the model may think before it answers. Pure.

    plain      prompt ──────────────► a step, or the rest of the chain (`writing`)
    thinking   prompt ─► its thinking ─┬─ closed ──────────────────────► the answer's first step,
                                       ├─ budget spent: closing text ──► or all of it
                                       └─ ended, or cut off: no answer

Thinking that ends is written together with what follows it, in several requests one after the
other, because what ends a step or shapes an answer must not act inside the thinking. Each part has
a seed of its own; white space behind the closing mark belongs to the thinking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from tts.build.thinking import Thinking
from tts.build.tokenizer import Ids
from tts.endpoints.base import GenerateCall
from tts.endpoints.thinking import ThinkingWriter, extended
from tts.search import Expand, Stop, Thought

from .context import Context
from .models import Models
from .writing import Writing, Written, answer, call_for, room

MOST_BLANKS = 4
"""Requests for an answer's first step whose replies may be blank before one counts as it."""
MOST_PARTS = MOST_BLANKS + 2
"""Requests that one node takes, at most: two of them for a paragraph of its thinking."""


def writing(context: Context, work: Expand) -> Writing:
    """The requests that an expansion takes."""
    parent = work.node[:-1]
    thinking = context.models.thinking
    if thinking is None or (before := context.thought_tokens(parent)) is None:
        return answer(context, work, context.generator_ids(parent), work.seed)
    return _think(context, work, thinking, before)


def part_seed(seed: int, part: int) -> int:
    """The seed of a node's request number `part`, from 0 on, by the node's own seed."""
    if not part:
        return seed
    text = f"{seed}\x1f{part}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@dataclass
class _Parts:
    """The requests of one node: where its chain stands, and what they have taken."""

    work: Expand
    ids: Ids
    requests: int = 0
    tokens: int = 0

    def call(
        self, limit: int, *, at_step: bool, stop_words: tuple[tuple[int, ...], ...] = ()
    ) -> GenerateCall:
        """The next request, behind the ids so far."""
        return call_for(
            self.work, self.ids, self.seed, limit, at_step=at_step, stop_words=stop_words
        )

    @property
    def seed(self) -> int:
        """The seed of the next request: the node's own for the first, others made from it."""
        return part_seed(self.work.seed, self.requests)

    def take(self, tokens: int) -> None:
        """Count an answered request."""
        self.requests += 1
        self.tokens += tokens


def _think(context: Context, work: Expand, thinking: Thinking, before: int) -> Writing:
    """Thinking, `before` of whose tokens the chain has already, and what follows it."""
    models, sampling = context.models, work.sampling
    part = _Parts(work, context.generator_ids(work.node[:-1]))
    budget = sampling.thinking_budget or thinking.budget
    most = sampling.max_tokens if budget is None else budget - before - len(thinking.closing_ids)
    limit = min(most, room(context, work, part.ids))
    if work.whole and budget is None and not (sampling.answer_regex or sampling.answer_schema):
        reply = yield part.call(limit, at_step=False)  # nothing acts on its parts
        part.take(len(reply))
        ids, truncated = models.without_end(reply, truncated=len(reply) >= limit)
        if (end := thinking.end(ids)) is None:
            stop = Stop.LENGTH if truncated else Stop.END
            return Written((_thought(models, ids, stop),), part.tokens)
        rest = models.thoughts(ids[end:], truncated=truncated, whole=True)
        return _joined(models, ids[:end], rest, part)
    start = part.ids
    fits = most + len(thinking.closing_ids) < models.room(part.ids)  # and a token of the answer
    writer = ThinkingWriter(thinking, limit, closes=budget is not None and fits)
    stop = yield from _write_thinking(models, part, writer)
    writer.finish(truncated=stop is Stop.LENGTH)
    if not writer.closed:
        return Written((_thought(models, writer.ids, stop),), part.tokens)
    for _ in range(MOST_BLANKS):
        part.ids = extended(start, writer.ids)
        follows = yield from answer(context, work, part.ids, part.seed, behind_thinking=True)
        part.take(follows.tokens)
        outcome = _joined(models, writer.ids, follows.thoughts, part)
        if len(outcome.thoughts) > 1:
            return outcome
        writer.ids = list(outcome.thoughts[0].token_ids)
    return Written((*outcome.thoughts, Thought((), "", Stop.END)), part.tokens)


def _write_thinking(
    models: Models, part: _Parts, writer: ThinkingWriter
) -> Generator[GenerateCall, list[int], Stop]:
    """Requests up to the end of the thinking or, in steps, of a paragraph; why they end."""
    start, thinking = part.ids, writer.thinking
    least = 0 if part.work.whole else thinking.paragraph or 0
    while (size := len(writer.ids)) < writer.limit:
        at_step = 0 < least <= size
        limit = (min(writer.limit, least) if size < least else writer.limit) - size
        part.ids = extended(start, writer.ids)
        reply = yield part.call(limit, at_step=at_step, stop_words=thinking.stop_words)
        part.take(len(reply))
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


def _joined(models: Models, ids: Sequence[int], answer: Sequence[Thought], part: _Parts) -> Written:
    """Closed thinking, with the white space behind it, and what follows."""
    blank = 0
    while blank < len(answer) and answer[blank].blank and answer[blank].stop is Stop.STEP:
        ids = [*ids, *answer[blank].token_ids]
        blank += 1
    return Written((_thought(models, ids, Stop.STEP), *answer[blank:]), part.tokens)


def _thought(models: Models, ids: Sequence[int], stop: Stop) -> Thought:
    return Thought(tuple(ids), models.generator.decode(ids), stop, thinking=True)
