"""A search's turn in a chat with tools: whole candidates, of which votes or the verifier choose.

A call of a tool is one step, which no tree divides. So every strategy draws n whole answers of the
model at a time: calls, or a text. `majority-vote` counts equal ones, the others weigh them by the
verifier's scores (`tools.votes`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tts.build.errors import DatasetError
from tts.problem import Problem
from tts.prompting.context import score_calls
from tts.search import SearchConfig, significant
from tts.session.strategy import choose

from .exchange import Exchange
from .generation import CallingDelta, Delta
from .openai.answers import CHAT, Answer, SearchUsage, TokenDetails, Usage
from .openai.errors import ApiError, bad_request
from .openai.events import DONE, KEEP_ALIVE, Events
from .openai.messages import ToolCall
from .openai.requests import ChatRequest
from .pooling import steps_of
from .search_request import SearchRequest, read_search_request
from .searches import KEEP_ALIVE_S
from .service import Service, admit
from .tool_turns import ToolTurn, reading_calls
from .tools.conversation import transcript
from .tools.votes import Candidate, Vote, vote

UNSCORED = ("majority-vote", "greedy")
"""Strategies that ask no verifier."""

MOST_DRAWN = 16
"""Candidates that `auto` draws at most."""


@dataclass(frozen=True)
class CandidateTurn:
    """Prompt and settings that each candidate is drawn with."""

    request: ChatRequest
    prompt: list[int]
    guide: str | None
    tools: ToolTurn | None


@dataclass(frozen=True)
class _Outcome:
    """The outcome of a turn."""

    candidates: list[Candidate]
    vote: Vote
    limit: str | None
    verifier_tokens: int
    verifier_calls: int
    seconds: float

    @property
    def chosen(self) -> Candidate:
        return self.candidates[self.vote.chosen]


async def answer_by_candidates(
    service: Service, exchange: Exchange, turn: CandidateTurn, strategy: str | None
) -> None:
    """Draw candidates for the next message of a chat, choose one, and respond."""
    question = transcript(turn.request.messages)
    asked = read_search_request(
        service, exchange, turn.request, strategy, Problem("solve", question)
    )
    config = choose(asked.config.strategy, service.deployment, asked.config.parameters).config
    if config and config.TAKES_BUDGET:  # its n is a bound for votes that end it, and none do here
        asked = replace(asked, n=min(asked.n, MOST_DRAWN))
    room = service.generator.room(turn.prompt, turn.request.limit)
    if config:
        room = min(room, config.max_tokens)
    if budget := asked.config.limits.budget_tokens:
        room = max(1, min(room, budget // asked.n))
    record = exchange.record
    record.strategy, record.prompt_tokens = asked.config.strategy, len(turn.prompt)
    admit(service, exchange, len(turn.prompt) + asked.n * room, search=True)
    record.t2 = time.monotonic()
    draw = _Draw(service, exchange, turn, asked, config, room)
    if turn.request.stream:
        await _stream(service, exchange, draw)
    else:
        outcome = await draw.outcome(question)
        answer = Answer(
            draw.id,
            CHAT.object,
            draw.created,
            turn.request.model,
            [CHAT.choice(0, outcome.chosen.text, _finish(outcome), None, outcome.chosen.calls)],
            draw.usage(outcome),
            draw.told(outcome),
        )
        record.t4 = time.monotonic()
        await exchange.respond(msgspec.json.encode(answer))


class _Draw:
    """The candidates of one request."""

    def __init__(
        self,
        service: Service,
        exchange: Exchange,
        turn: CandidateTurn,
        asked: SearchRequest,
        config: SearchConfig | None,
        room: int,
    ) -> None:
        self._service = service
        self._exchange = exchange
        self.turn = turn
        self._asked = asked
        self._config = config
        self._room = room
        self.id = exchange.record.id
        self.created = int(time.time())
        self.generated = 0
        """Tokens of all candidates."""

    async def outcome(self, question: str) -> _Outcome:
        """Draw, score and choose; raises ApiError."""
        began = time.monotonic()
        candidates, limit = await self._drawn()
        self._exchange.record.t3 = time.monotonic()
        tokens = calls = 0
        if self._asked.config.strategy not in UNSCORED:
            candidates, tokens, calls = await self._scored(question, candidates)
        found = vote(candidates)
        seconds = round(time.monotonic() - began, 6)
        return _Outcome(candidates, found, limit, tokens, calls, seconds)

    async def _drawn(self) -> tuple[list[Candidate], str | None]:
        """All candidates, or those that are complete at the deadline."""
        generator, request, turn = self._service.generator, self.turn.request, self.turn
        config, n = self._config, self._asked.n
        sampled = msgspec.structs.replace(
            request,
            n=n,
            seed=self._asked.config.seed,
            temperature=config.temperature if config else request.temperature,
            top_p=config.top_p if config else request.top_p,
            stream=False,
        )
        calls = generator.calls([turn.prompt], sampled, [self._room], logs=False, guide=turn.guide)
        marks = turn.tools.marks if turn.tools else None

        async def one(index: int) -> Candidate:
            sample = generator.sample(0, calls[index], request, marks)
            key = f"{self.id}-{index}"
            deltas: AsyncGenerator[Delta, None]
            deltas = generator.deltas(calls[index], sample, self._exchange.record, key)
            text, called = "", list[ToolCall]()
            if turn.tools:
                deltas = reading_calls(deltas, turn.tools, 1)
            async with aclosing(deltas):
                async for delta in deltas:
                    text += delta.text
                    if isinstance(delta, CallingDelta):
                        called += delta.calls
            cut = sample.finish == "length"
            return Candidate(text, tuple(called), tokens=sample.tokens, cut=cut)

        tasks = [asyncio.ensure_future(one(index)) for index in range(n)]
        try:
            limits = self._asked.config.limits
            done, late = await asyncio.wait(
                tasks, timeout=limits.deadline_s, return_when=asyncio.FIRST_EXCEPTION
            )
            failed = [task.exception() for task in done if task.exception()]
            if failed and failed[0]:
                raise failed[0]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        drawn = [task.result() for task in tasks if task in done]
        self.generated = sum(candidate.tokens for candidate in drawn)
        if not drawn:
            raise ApiError(
                504, "No candidate was complete within the deadline.", code="deadline_exceeded"
            )
        # one that was cut off says nothing, unless all were
        complete = [candidate for candidate in drawn if not candidate.cut]
        return complete or drawn, "deadline" if late else None

    async def _scored(
        self, question: str, candidates: list[Candidate]
    ) -> tuple[list[Candidate], int, int]:
        """The candidates with scores; the verifier's tokens and calls. Equal ones share a score."""
        service = self._service
        delimiter = service.deployment.generator.step_delimiter
        texts = {self._said(candidate): 0.0 for candidate in candidates}
        tokens = calls = 0
        try:
            asked = [
                score_calls(service.session.models, question, steps_of(text, delimiter) or [text])
                for text in texts
            ]
        except DatasetError as error:
            raise bad_request(error.message, "messages", "context_length_exceeded") from None
        last = [each[-1] for each in asked]
        scores = await service.session.score_calls(last)
        tokens, calls = sum(len(each.input_ids) for each in last), len(last)
        texts = dict(zip(texts, scores, strict=True))
        scored = [replace(each, score=significant(texts[self._said(each)])) for each in candidates]
        return scored, tokens, calls

    def _said(self, candidate: Candidate) -> str:
        """A candidate as the verifier reads it."""
        form = self.turn.tools.form if self.turn.tools else None
        called = [
            (call.function.name, msgspec.json.decode(call.function.arguments))
            for call in candidate.calls
        ]
        written = form.write(called) if form and called else ""
        return "\n".join(filter(None, (candidate.text, written)))

    def usage(self, outcome: _Outcome) -> Usage:
        """True counts: all generated tokens, the chosen candidate's and the others'."""
        record = self._exchange.record
        generated = self.generated
        record.answer_tokens = outcome.chosen.tokens
        record.search_tokens = generated - outcome.chosen.tokens
        record.verifier_tokens = outcome.verifier_tokens
        if self._service.recorder.keeps_prompts:
            record.answer = self._said(outcome.chosen)
        return Usage(
            record.prompt_tokens,
            generated,
            record.prompt_tokens + generated,
            TokenDetails(record.search_tokens),
            SearchUsage(
                outcome.verifier_tokens,
                self._asked.n,
                outcome.verifier_calls,
                outcome.seconds,
            ),
        )

    def told(self, outcome: _Outcome) -> dict[str, Any]:
        """The field `tts` of the answer."""
        own = self._exchange.record.own_latency_s(time.monotonic())
        shows = not self._service.filters.of_output
        score = outcome.chosen.score
        weights = {key: significant(weight) for key, weight in outcome.vote.weights.items()}
        return {
            "strategy": self._asked.config.strategy,
            "n": self._asked.n,
            "seed": self._asked.config.seed,
            "candidates": len(outcome.candidates),
            "votes": weights if shows else None,
            "score": score,
            "limit": outcome.limit,
            "gateway_ms": None if own is None else round(1000 * own, 3),
        }


def _finish(outcome: _Outcome) -> str:
    if outcome.chosen.cut:
        return "length"
    return "tool_calls" if outcome.chosen.calls else "stop"


async def _stream(service: Service, exchange: Exchange, draw: _Draw) -> None:
    """Respond with comments while candidates are drawn, then with the one that was chosen."""
    request = draw.turn.request
    exchange.record.stream = True
    counts = request.stream_options.include_usage
    events = Events(draw.id, CHAT.chunk, draw.created, request.model, usage=counts)
    work = asyncio.ensure_future(draw.outcome(transcript(request.messages)))
    try:
        async with aclosing(_quiet(work)) as waiting:
            async for _ in waiting:
                if exchange.record.t5 is None:
                    await exchange.start_events()
                await exchange.event(KEEP_ALIVE)
        outcome = await work
    finally:
        work.cancel()
    exchange.record.t4 = time.monotonic()
    if exchange.record.t5 is None:
        await exchange.start_events()
    data = events.role(0)
    if outcome.chosen.text:
        data += events.text(0, outcome.chosen.text)
    if outcome.chosen.calls:
        data += events.calls(0, 0, outcome.chosen.calls)
    usage = draw.usage(outcome)
    data += events.choice(0, "", finish=_finish(outcome), tts=draw.told(outcome))
    if counts:
        data += events.usage(usage)
    await exchange.end_events(data + DONE)


async def _quiet(work: asyncio.Future[Any]) -> AsyncGenerator[None, None]:
    """An item after every `KEEP_ALIVE_S` without output."""
    while not work.done():
        done, _ = await asyncio.wait({work}, timeout=KEEP_ALIVE_S)
        if not done:
            yield
