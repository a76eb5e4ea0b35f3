"""A search's turn in a chat with tools: whole candidates, of which votes or the verifier choose.

A call of a tool is one step, which no tree divides. So every strategy draws n whole answers of the
model at a time: calls, or a text. `majority-vote` counts equal ones, the others weigh them by the
verifier's scores (`tools.votes`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tts.build.errors import DatasetError
from tts.engines.wire import Guide
from tts.problem import Problem
from tts.prompting.context import score_calls
from tts.search import SearchConfig, significant
from tts.session import Step

from .exchange import Exchange
from .generation import CallingDelta, Delta
from .observability import ServedRequest
from .openai.answers import CHAT, Answer, SearchUsage, TokenDetails, Usage
from .openai.errors import NO_RETRY, ApiError, bad_request
from .openai.events import DONE, KEEP_ALIVE, Events
from .openai.messages import ToolCall
from .openai.requests import ChatRequest
from .pooling import steps_of
from .running_searches import RunningSearch
from .sample_text import SampleText
from .search_request import SearchRequest, read_search_request
from .searches import KEEP_ALIVE_S, joined
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
    guide: Guide | None
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
    service: Service, exchange: Exchange, turn: CandidateTurn, strategy: str | None, body: bytes
) -> None:
    """Draw candidates for the next message of a chat, choose one, and respond."""
    question = transcript(turn.request.messages)
    asked = read_search_request(
        service, exchange, turn.request, strategy, Problem("solve", question)
    )
    config = asked.plan.strategy.config
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

    def start() -> _Draw:
        return _Draw(service, record.id, turn, asked, config, room)

    with joined(service, exchange, body, start) as draw:
        response = _Response(service, exchange, turn, asked, draw)
        await (response.stream() if turn.request.stream else response.whole())


class _Draw(RunningSearch[_Outcome]):
    """The candidates of one request, or of several that are the same."""

    def __init__(
        self,
        service: Service,
        name: str,
        turn: CandidateTurn,
        asked: SearchRequest,
        config: SearchConfig | None,
        room: int,
    ) -> None:
        """`name` says where each candidate stays, `room` how many tokens it has at most."""
        self._service = service
        self._name = name
        self._turn = turn
        self._asked = asked
        self._config = config
        self._room = room
        self._samples: list[SampleText] = []
        super().__init__(self._outcome)

    @property
    def tokens(self) -> int:
        """Tokens of all candidates so far, complete or not."""
        return sum(sample.tokens for sample in self._samples)

    async def _outcome(
        self, on_step: Callable[[Step], None], on_server: Callable[[str], None]
    ) -> _Outcome:
        """Draw, score and choose; raises ApiError."""
        began = time.monotonic()
        candidates, limit = await self._drawn(on_server)
        tokens = calls = 0
        if self._asked.config.strategy not in UNSCORED:
            candidates, tokens, calls = await self._scored(candidates)
        found = vote(candidates)
        seconds = round(time.monotonic() - began, 6)
        return _Outcome(candidates, found, limit, tokens, calls, seconds)

    async def _drawn(self, on_server: Callable[[str], None]) -> tuple[list[Candidate], str | None]:
        """All candidates, or those that are complete at the deadline."""
        generator, request, turn = self._service.generator, self._turn.request, self._turn
        config, n = self._config, self._asked.n
        sampled = msgspec.structs.replace(
            request,
            n=n,
            seed=self._asked.config.seed,
            temperature=config.temperature if config else request.temperature,
            top_p=config.top_p if config else request.top_p,
        )
        calls = generator.calls(
            [turn.prompt], sampled, [self._room], guide=turn.guide, charged=True
        )
        marks = turn.tools.marks if turn.tools else None
        self._samples = [generator.sample(0, call, request, marks) for call in calls]

        async def one(index: int) -> Candidate:
            sample = self._samples[index]
            # none of a client's: clients come and go
            record = ServedRequest(id=f"{self._name}-{index}", endpoint="", time=0.0, t0=0.0)
            deltas: AsyncGenerator[Delta, None]
            deltas = generator.deltas(calls[index], sample, record, record.id)
            text, called = "", list[ToolCall]()
            if turn.tools:
                deltas = reading_calls(deltas, turn.tools, 1)
            async with aclosing(deltas):
                async for delta in deltas:
                    if record.replica:
                        on_server(record.replica)
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
        if not drawn:
            raise ApiError(
                504,
                "No candidate was complete within the deadline.",
                code="deadline_exceeded",
                headers=NO_RETRY,
            )
        # one that was cut off says nothing, unless all were
        complete = [candidate for candidate in drawn if not candidate.cut]
        return complete or drawn, "deadline" if late else None

    async def _scored(self, candidates: list[Candidate]) -> tuple[list[Candidate], int, int]:
        """The candidates with scores; the verifier's tokens and calls. Equal ones share a score."""
        service, question = self._service, self._asked.problem.question
        delimiter = service.deployment.generator.step_delimiter
        texts = {self.said(candidate): 0.0 for candidate in candidates}
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
        scored = [replace(each, score=significant(texts[self.said(each)])) for each in candidates]
        return scored, tokens, calls

    def said(self, candidate: Candidate) -> str:
        """A candidate as the verifier reads it."""
        form = self._turn.tools.form if self._turn.tools else None
        called = [
            (call.function.name, msgspec.json.decode(call.function.arguments))
            for call in candidate.calls
        ]
        written = form.write(called) if form and called else ""
        return "\n".join(filter(None, (candidate.text, written)))


class _Response:
    """The response to one client, whole or as a stream."""

    def __init__(
        self,
        service: Service,
        exchange: Exchange,
        turn: CandidateTurn,
        asked: SearchRequest,
        draw: _Draw,
    ) -> None:
        self._service = service
        self._exchange = exchange
        self._request = turn.request
        self._asked = asked
        self._draw = draw
        self._created = int(time.time())

    async def whole(self) -> None:
        """Respond when one is chosen."""
        outcome = await self._draw.result()
        record, chosen = self._exchange.record, outcome.chosen
        record.t3 = time.monotonic()
        answer = Answer(
            record.id,
            CHAT.object,
            self._created,
            self._request.model,
            [CHAT.choice(0, chosen.text, _finish(outcome), None, chosen.calls)],
            self._usage(outcome),
            self._told(outcome),
        )
        record.t4 = time.monotonic()
        await self._exchange.respond(msgspec.json.encode(answer))

    async def stream(self) -> None:
        """Respond with comments while candidates are drawn, then with the one that was chosen."""
        exchange, request = self._exchange, self._request
        record = exchange.record
        record.stream = True
        counts = request.stream_options.include_usage
        events = Events(record.id, CHAT.chunk, self._created, request.model, usage=counts)
        async with aclosing(self._draw.progress(KEEP_ALIVE_S)) as waiting:
            async for _ in waiting:
                if record.t5 is None:
                    await exchange.start_events()
                await exchange.event(KEEP_ALIVE)
        outcome = await self._draw.result()
        record.t3 = record.t4 = time.monotonic()
        if record.t5 is None:
            await exchange.start_events()
        data = events.role(0)
        if outcome.chosen.text:
            data += events.text(0, outcome.chosen.text)
        if outcome.chosen.calls:
            data += events.calls(0, 0, outcome.chosen.calls)
        usage = self._usage(outcome)
        data += events.choice(0, "", finish=_finish(outcome), tts=self._told(outcome))
        if counts:
            data += events.usage(usage)
        await exchange.end_events(data + DONE)

    def _usage(self, outcome: _Outcome) -> Usage:
        """True counts: all generated tokens, the chosen candidate's and the others'."""
        record = self._exchange.record
        generated = self._draw.tokens
        record.answer_tokens = outcome.chosen.tokens
        record.search_tokens = generated - outcome.chosen.tokens
        record.verifier_tokens = outcome.verifier_tokens
        if self._service.recorder.keeps_prompts:
            record.answer = self._draw.said(outcome.chosen)
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

    def _told(self, outcome: _Outcome) -> dict[str, Any]:
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
