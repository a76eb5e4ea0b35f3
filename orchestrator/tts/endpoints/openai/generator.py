"""The generator behind a server: samples, whole or streamed, and where they end.

Servers end an output by texts, by ids, or by their own idea of the end of a sequence, and some give
the token that ended it. Here an end-of-sequence id does not belong to the output, a stop word does,
and no output is longer than asked.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import fields, replace
from functools import lru_cache
from operator import attrgetter

from tts.base.errors import EndpointError, EndpointUnavailable, RequestRefused, ServerError
from tts.build.tokenizer import Tokenizer
from tts.engines import wire
from tts.engines.generate_request import StopWords

from ..base import GenerateCall
from ..shaping import NO_PROMPTS, FieldRefused, refuse_top, shaped
from ..streaming import NewTokens, OutputEnds, StreamingGenerator
from . import answers
from .dialects import LIMITS, Ask, LogProbs, Piece, require_ids
from .http_client import read_out
from .server import OpenAIServer
from .shared_requests import SharedRequests, Waiting, samples

Word = tuple[int, ...]
Siblings = Waiting[GenerateCall, list[int]]

_OWN = ("input_ids", "seed", "on_rest")
"""The fields of a call in which siblings may differ."""
_same = attrgetter(*(each.name for each in fields(GenerateCall) if each.name not in _OWN))


class Ends:
    """Where outputs end: ids that are not part of them, and words that are."""

    def __init__(self, ids: Collection[int], words: Sequence[StopWords]) -> None:
        self.ids, self.words = ids, words
        self.signs = frozenset(ids).union(*(each.last_ids for each in words))
        """The tokens with which an output may end."""


class Output:
    """An output that grows, cut where it ends."""

    def __init__(self, ends: Ends, limit: int) -> None:
        """`limit` is how many tokens it has at most."""
        self._ends, self._limit = ends, limit
        self._ids: list[int] = []
        self.is_over = limit < 1

    def add(self, ids: Sequence[int]) -> int:
        """How many of these further ids belong to it; `is_over` says whether it ends with them."""
        ends, start = self._ends, 0
        inner = ids[: max(0, min(len(ids), self._limit - len(self._ids)) - 1)]
        if not self.is_over and ends.signs.isdisjoint(inner):  # in one look, as nearly always
            self._ids += inner
            start = len(inner)
        for size, token in enumerate(ids[start:], start):
            if self.is_over or token in ends.ids:
                self.is_over = True
                return size
            self._ids.append(token)
            last = len(self._ids) - 1
            self.is_over = last + 1 >= self._limit or (
                token in ends.signs and any(w.end(self._ids, last) for w in ends.words)
            )
        return len(ids)


class OpenAIGenerator(StreamingGenerator):
    """The model of a server; see endpoints.StreamingGenerator."""

    def __init__(
        self,
        server: OpenAIServer,
        *,
        tokenizer: Tokenizer,
        ends: OutputEnds,
        step_delimiter: str,
    ) -> None:
        """`tokenizer` is that of the model which the server runs.

        A step ends at `step_delimiter` in the text, too. Raises ServerError for a server that is
        known to give no completions.
        """
        if server.capabilities and not server.capabilities.generates:
            raise ServerError(
                f"The server at {server.http.address} gives scores and no completions.",
                hint="Give the generator's section the url of a server that generates.",
            )
        self._server, self._http = server, server.http
        self._tokenizer = tokenizer
        self._delimiter = step_delimiter
        self._endless = ends.id == wire.NO_END_ID
        self._end_ids = {ends.id, *(word[0] for word in ends.sequence if len(word) == 1)}
        self._end_words = StopWords(word for word in ends.sequence if len(word) > 1)
        self._step_words = StopWords(ends.step)
        self._step_ids = tuple(word[0] for word in ends.step if len(word) == 1)
        self._stops = lru_cache(maxsize=256)(self._new_stops)
        self._ends = lru_cache(maxsize=256)(self._new_ends)
        self._siblings = SharedRequests(_siblings, self._draw)

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator; sent again after a failure that may pass."""
        ids = await self._sibling(call)
        return (await self._http.patiently(lambda: self._once(call))).ids if ids is None else ids

    async def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        """See endpoints.StreamingGenerator; in one piece where streams leave tokens out."""
        if not (call.streaming and self._server.dialect.streams):
            ids = await self._sibling(call)
            yield await self._once(call) if ids is None else NewTokens(ids, final=True)
            return
        ask, output = replace(self._asked(call), stream=True), self._output(call)
        count = 0
        async with aclosing(
            self._http.events(self._server.dialect.path, self._body(ask))
        ) as events:
            async for event in events:
                piece = self._server.dialect.piece(event)
                new = self._new_tokens(piece, count, call)
                count += len(new.ids)
                size = output.add(new.ids)
                final = output.is_over or bool(piece.end)
                if size or final:
                    try:
                        yield NewTokens(new.ids[:size], new.log_probs[:size], final, new.top[:size])
                    finally:
                        if piece.end:  # else closing the connection ends the output
                            await read_out(events)
                if final:
                    return
        raise EndpointUnavailable(
            f"The server at {self._http.address} broke an answer off after {count} tokens."
        )

    async def read(self, call: GenerateCall) -> NewTokens:
        """See endpoints.ReadingGenerator; sent again after a failure that may pass."""
        server, ids, top = self._server, call.input_ids.tolist(), call.top_log_probs
        if server.dialect.prompts is None or not server.abilities.prompt_log_probs:
            raise FieldRefused("echo", f"this server ({server.dialect.kind})", NO_PROMPTS)
        path, prompts = server.dialect.path, server.dialect.prompts
        body = prompts.body(server.abilities.model, ids, top)
        answer = await self._http.patiently(lambda: self._http.post(path, body))
        rows = prompts.read(answer, ids)
        own = (row[token] for token, row in zip(ids[1:], rows, strict=True))
        ranked = [[], *(_ranked(row, top) for row in rows)] if top else []
        return NewTokens(ids, [math.nan, *own], top=ranked)

    async def _sibling(self, call: GenerateCall) -> list[int] | None:
        """The output, from a request for several; None where it takes one of its own."""
        alone = call.log_probs or call.temperature == 0 or not self._server.abilities.siblings
        if alone:
            return None
        return await self._siblings.answer(call, (call.input_ids.tobytes(), _same(call)))

    async def _draw(self, siblings: Siblings) -> None:
        server, first = self._server, siblings[0][0]
        with suppress(EndpointError):  # a request of its own says it again, or is patient
            ask = replace(self._asked(first), samples=len(siblings))
            pieces = samples(self._http, server.dialect, server.abilities.model, ask)
            async with aclosing(pieces):
                async for piece in pieces:
                    ids = self._new_tokens(piece, 0, first).ids
                    _, answer = siblings[piece.index]
                    if not answer.done():
                        answer.set_result(ids[: self._output(first).add(ids)])

    async def _once(self, call: GenerateCall) -> NewTokens:
        """The whole output."""
        dialect, ask, piece = self._server.dialect, self._asked(call), None
        if dialect.read_streamed:
            piece = await self._read(replace(ask, stream=True), self._output(call))
        if piece is None:
            piece = dialect.piece(await self._http.post(dialect.path, self._body(ask)))
        if not piece.end:
            raise answers.bad("the reason why an output ends", piece.end)
        new = self._new_tokens(piece, 0, call)
        size = self._output(call).add(new.ids)
        return NewTokens(new.ids[:size], new.log_probs[:size], True, new.top[:size])

    async def _read(self, ask: Ask, output: Output) -> Piece | None:
        """A whole output from its stream, read to its end here; None if that leaves a token out."""
        whole, ids = Piece(None), list[int]()
        path, body = self._server.dialect.path, self._body(ask)
        async with aclosing(self._http.events(path, body, closed=True)) as events:
            async for event in events:
                piece = self._server.dialect.piece(event)
                ids += piece.ids or ()
                whole.text += piece.text
                whole.log_probs += piece.log_probs
                whole.top += piece.top
                if piece.so_far is not None and piece.so_far > len(ids):
                    return None
                output.add(piece.ids or ())
                is_over = output.is_over or any(stop in whole.text for stop in ask.stop)
                if piece.end or (is_over and len(ids) < ask.max_tokens):
                    whole.ids, whole.end = ids, piece.end or "stop"
                    return whole
        raise EndpointUnavailable(f"The server at {self._http.address} broke an answer off.")

    def _new_tokens(self, piece: Piece, count: int, call: GenerateCall) -> NewTokens:
        """What a piece adds to the tokens given before."""
        ids = require_ids(piece, self._tokenizer.vocab_size)
        if call.log_probs and len(piece.log_probs) != len(ids):
            raise EndpointError(
                f"The server at {self._http.address} answered {len(ids)} tokens with "
                f"{len(piece.log_probs)} log-probabilities."
            )
        if call.top_log_probs and len(piece.top) != len(ids):
            raise answers.bad(f"the likeliest tokens at {len(ids)} places", piece.top)
        start = count if count and piece.so_far == len(ids) else 0  # it repeats what was before
        stop = len(ids)
        if piece.end and piece.end not in LIMITS and ids:  # by an end that only the server knows
            last = ids[-1]
            stop -= last in self._tokenizer.added_ids and (last,) not in call.stop_words
        most = call.top_log_probs
        return NewTokens(
            ids[start:stop],
            piece.log_probs[start:stop] if call.log_probs else [],
            top=[_ranked(row, most) for row in piece.top[start:stop]] if most else [],
        )

    def _body(self, ask: Ask) -> dict[str, object]:
        return self._server.dialect.sample(self._server.abilities.model, ask)

    def _asked(self, call: GenerateCall) -> Ask:
        if call.guide is not None and not self._server.abilities.grammar:
            raise RequestRefused(
                f"{self._server} cannot hold an output to a grammar.",
                hint="Leave answer_regex and answer_schema out, or serve the generator with vLLM, "
                "SGLang, llama.cpp's llama-server or trtllm-serve.",
            )
        name = f"this server ({self._server.dialect.kind})"
        if not self._server.dialect.tops:
            refuse_top(call.top_log_probs, name)
        ids, context = call.input_ids, self._server.abilities.context
        most = call.max_new_tokens
        if context is not None:
            most = max(1, min(most, context - len(ids)))
        greedy = call.temperature == 0
        stop, stop_ids = self._stops(call.stop_words, call.stop_at_step)
        ignore_end = call.ignore_end or self._endless
        return Ask(
            ids.tolist(),
            most,
            0 if greedy else call.seed % self._server.dialect.seeds,
            0.0 if greedy else call.temperature,
            1.0 if greedy else call.top_p,
            0 if greedy else call.top_k,
            stop,
            (*stop_ids, *(() if ignore_end else sorted(self._end_ids))),
            ignore_end,
            call.guide,
            call.log_probs,
            shaping=shaped(call.shaping, self._server.dialect.shapes, name),
            top=call.top_log_probs,
        )

    def _new_stops(
        self, words: tuple[Word, ...], at_step: bool
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The texts and the ids at which the server ends an output."""
        texts = [self._tokenizer.decode(word) for word in words if len(word) > 1]
        at = (self._delimiter,) if at_step and self._delimiter else ()
        stop_ids = tuple(word[0] for word in words if len(word) == 1)
        if at and self._server.dialect.stops_by_ids:
            stop_ids = (*stop_ids, *self._step_ids)
        return (*at, *(text for text in texts if text)), stop_ids

    def _output(self, call: GenerateCall) -> Output:
        ends = self._ends(call.stop_words, call.stop_at_step, call.ignore_end or self._endless)
        return Output(ends, call.max_new_tokens)

    def _new_ends(self, own: tuple[Word, ...], at_step: bool, ignore_end: bool) -> Ends:
        words = [StopWords(own)] if own else []
        if not ignore_end:
            words.append(self._end_words)
        if at_step:
            words.append(self._step_words)
        return Ends(() if ignore_end else self._end_ids, words)


def _siblings(calls: Siblings) -> Iterator[Siblings]:
    """The calls whose seeds count up, of some that differ in their seeds alone."""
    group = sorted(calls, key=lambda each: each[0].seed)
    start = 0
    for end in range(1, len(group) + 1):
        if end == len(group) or group[end][0].seed != group[end - 1][0].seed + 1:
            yield group[start:end]
            start = end


def _ranked(row: LogProbs, most: int) -> list[tuple[int, float]]:
    """The likeliest tokens that the server names by id; some servers add the drawn one to them."""
    entries = [(token, value) for token, value in row.items() if isinstance(token, int)]
    return sorted(entries, key=lambda each: (-each[1], each[0]))[:most]
