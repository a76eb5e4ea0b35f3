"""A search's turn in a chat with tools: whole candidates, of which votes or the verifier choose.

A call of a tool is one step, which no tree divides. So every strategy draws n whole answers of the
model at a time: calls, or a text. `majority-vote` counts equal ones, the others weigh them by the
verifier's scores (`tools.votes`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
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

from ..exchange import Exchange
from ..observability import ServedRequest
from ..openai.answers import AnswerEnd, AnswerPart, Encoder, SearchUsage, TokenUsage, usage_of
from ..openai.errors import NO_RETRY, ApiError, bad_request
from ..openai.messages import ToolCall
from ..openai.requests import ChatRequest
from ..pooling import steps_of
from ..service import Service, admit
from ..tools.conversation import transcript
from ..tools.votes import DrawnAnswer, Vote, vote
from .running_searches import RunningSearch
from .sample_text import SampleText
from .search_request import SearchRequest, read_search_request
from .searches import join_and_respond
from .tool_turns import ToolTurn, reading_calls

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

    def written(self, candidate: DrawnAnswer) -> str:
        """A candidate as the verifier reads it."""
        form = self.tools.form if self.tools else None
        called = [
            (call.function.name, msgspec.json.decode(call.function.arguments))
            for call in candidate.calls
        ]
        written = form.write(called) if form and called else ""
        return "\n".join(filter(None, (candidate.text, written)))


@dataclass(frozen=True)
class _Ballot:
    """The outcome of a turn."""

    candidates: list[DrawnAnswer]
    vote: Vote
    limit: str | None
    verifier_tokens: int
    verifier_calls: int
    seconds: float

    @property
    def chosen(self) -> DrawnAnswer:
        return self.candidates[self.vote.chosen]


async def answer_by_candidates(
    service: Service,
    exchange: Exchange,
    turn: CandidateTurn,
    strategy: str | None,
    body: bytes,
    encoder: Encoder,
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

    answer = _CandidateAnswer(service, exchange, turn, asked)
    await join_and_respond(service, exchange, turn.request, encoder, body, start, answer)


class _Draw(RunningSearch[_Ballot]):
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
    ) -> _Ballot:
        """Draw, score and choose; raises ApiError."""
        began = time.monotonic()
        candidates, limit = await self._drawn(on_server)
        tokens = calls = 0
        if self._asked.config.strategy not in UNSCORED:
            candidates, tokens, calls = await self._scored(candidates)
        found = vote(candidates)
        seconds = round(time.monotonic() - began, 6)
        return _Ballot(candidates, found, limit, tokens, calls, seconds)

    async def _drawn(
        self, on_server: Callable[[str], None]
    ) -> tuple[list[DrawnAnswer], str | None]:
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

        async def one(index: int) -> DrawnAnswer:
            sample = self._samples[index]
            # none of a client's: clients come and go
            record = ServedRequest(id=f"{self._name}-{index}", endpoint="", time=0.0, t0=0.0)
            deltas = generator.deltas(calls[index], sample, record, record.id)
            text, called = "", list[ToolCall]()
            if turn.tools:
                deltas = reading_calls(deltas, turn.tools, 1)
            async with aclosing(deltas):
                async for delta in deltas:
                    if record.replica:
                        on_server(record.replica)
                    text += delta.text
                    called += delta.calls
            cut = sample.finish == "length"
            return DrawnAnswer(text, tuple(called), tokens=sample.tokens, cut=cut)

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

    async def _scored(self, candidates: list[DrawnAnswer]) -> tuple[list[DrawnAnswer], int, int]:
        """The candidates with scores; the verifier's tokens and calls. Equal ones share a score."""
        service, question = self._service, self._asked.problem.question
        delimiter = service.deployment.generator.step_delimiter
        texts = {self._turn.written(candidate): 0.0 for candidate in candidates}
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
        scored = [
            replace(each, score=significant(texts[self._turn.written(each)])) for each in candidates
        ]
        return scored, tokens, calls


class _CandidateAnswer:
    """Tells one client of the candidate that was chosen."""

    def __init__(
        self, service: Service, exchange: Exchange, turn: CandidateTurn, asked: SearchRequest
    ) -> None:
        self._service = service
        self._exchange = exchange
        self._turn = turn
        self._asked = asked

    def progress(self, draw: RunningSearch[_Ballot], steps: list[Step]) -> AnswerPart:
        """Nothing is told while candidates are drawn."""
        return AnswerPart()

    async def of(self, draw: RunningSearch[_Ballot], outcome: _Ballot) -> AnswerPart:
        """The chosen one."""
        chosen = outcome.chosen
        finish = "tool_calls" if chosen.calls else "stop"
        return AnswerPart(
            text=chosen.text or None,
            calls=chosen.calls,
            finish="length" if chosen.cut else finish,
            tts=self._told(outcome),
            end=AnswerEnd(self._usage(draw.tokens, outcome)),
        )

    def _usage(self, generated: int, outcome: _Ballot) -> TokenUsage:
        """True counts: all generated tokens, the chosen candidate's and the others'."""
        record, answer = self._exchange.record, outcome.chosen.tokens
        others = generated - answer
        record.answer_tokens, record.search_tokens = answer, others
        record.verifier_tokens = outcome.verifier_tokens
        if self._service.recorder.keeps_prompts:
            record.answer = self._turn.written(outcome.chosen)
        search = SearchUsage(
            outcome.verifier_tokens, self._asked.n, outcome.verifier_calls, outcome.seconds
        )
        return usage_of(record.prompt_tokens, answer, others, search)

    def _told(self, outcome: _Ballot) -> dict[str, Any]:
        """The field `tts` of the answer."""
        shows = not self._service.filters.of_output
        weights = {key: significant(weight) for key, weight in outcome.vote.weights.items()}
        return {
            "strategy": self._asked.config.strategy,
            "n": self._asked.n,
            "seed": self._asked.config.seed,
            "candidates": len(outcome.candidates),
            "votes": weights if shows else None,
            "score": outcome.chosen.score,
            "limit": outcome.limit,
            "gateway_ms": self._exchange.record.gateway_ms(),
        }
