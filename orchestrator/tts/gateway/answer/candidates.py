"""A search's turn in a chat with tools: whole candidates, of which votes or the verifier choose.

A call of a tool is one step, which no tree divides. So every strategy draws n whole answers of the
model at a time: calls, or a text. `majority-vote` counts equal ones, the others weigh them by the
verifier's scores (`tools.votes`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tts.build.thinking import Thinking
from tts.engines.wire import Guide
from tts.problem import Problem
from tts.prompting.step_ends import steps_of
from tts.search import SearchConfig, significant
from tts.session import Step

from ..exchange import Exchange
from ..observability import ServedRequest
from ..openai.answers import AnswerEnd, AnswerPart, Encoder, SearchUsage, usage_of
from ..openai.errors import too_late
from ..openai.messages import ToolCall
from ..openai.requests import ChatRequest
from ..output.running_searches import RunningSearch
from ..output.sample_text import SampleText
from ..service import Service, admit
from ..tools.conversation import transcript
from ..tools.votes import DrawnAnswer, Vote, vote
from .prompts import score_calls_of
from .search_request import SearchRequest, read_search_request
from .searches import join_and_respond
from .thinking import with_budget
from .tool_turns import ToolTurn, reading_calls

UNSCORED = ("majority-vote", "greedy", "confidence-vote")
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
    variables: Mapping[str, Any]
    """Of the chat template, which the prompt was made with."""
    thinking: Thinking | None
    """How each thinks first; None: the model does not."""

    @property
    def lead(self) -> str:
        """The beginning of a call that must come, where it follows thinking."""
        return self.tools.prefix if self.tools and self.thinking else ""

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
    problem = Problem("solve", question, chat_template_kwargs=turn.variables)
    asked = read_search_request(service, exchange, turn.request, strategy, problem)
    config = asked.plan.strategy.config
    if config:
        turn = replace(turn, thinking=with_budget(turn.thinking, config.thinking_budget))
    if config and config.TAKES_BUDGET:  # its n is a bound for votes that end it, and none do here
        asked = replace(asked, n=min(asked.n, MOST_DRAWN))
    behind = service.generator.models.generator.encode(turn.lead)
    room = service.generator.room([*turn.prompt, *behind], turn.request.limit)
    if config:
        room = min(room, config.max_tokens)
    if budget := asked.config.limits.budget_tokens:
        room = max(1, min(room, budget // asked.n))
    record = exchange.record
    record.strategy = asked.config.strategy
    admit(service, exchange, len(turn.prompt) + asked.n * room, search=True)
    record.prompt_tokens = len(turn.prompt)

    def start() -> _Draw:
        return _Draw(service, record.id, turn, asked, config, room)

    async def told(draw: RunningSearch[_Ballot], ballot: _Ballot) -> AnswerPart:
        return _answer(service, exchange, turn, asked, ballot, draw.tokens)

    await join_and_respond(service, exchange, turn.request, encoder, body, start, told)


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
        self._critiques = 0
        """Tokens that the verifier wrote."""
        super().__init__(self._outcome)

    @property
    def tokens(self) -> int:
        """Tokens of all candidates so far, complete or not."""
        return sum(sample.tokens for sample in self._samples) + self._critiques

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
            top_k=config.top_k if config else request.top_k,
            min_p=config.min_p if config else request.min_p,
        )
        calls = generator.calls(
            [turn.prompt], sampled, [self._room], guide=turn.guide, charged=True
        )
        marks = turn.tools.marks if turn.tools else None
        self._samples = [
            generator.sample(0, call, request, marks, thinking=turn.thinking, lead=turn.lead)
            for call in calls
        ]

        async def one(index: int) -> DrawnAnswer:
            sample = self._samples[index]
            # none of a client's: clients come and go
            record = ServedRequest(id=f"{self._name}-{index}", endpoint="", time=0.0, t0=0.0)
            deltas = generator.deltas(calls[index], sample, record, record.id)
            text, reasoning, called = "", "", list[ToolCall]()
            if turn.tools:
                deltas = reading_calls(deltas, turn.tools, 1)
            async with aclosing(deltas):
                async for delta in deltas:
                    if record.replica:
                        on_server(record.replica)
                    text += delta.text
                    reasoning += delta.reasoning
                    called += delta.calls
            cut = sample.finish == "length" or sample.thinks
            thought = len(sample.thinking.ids) if sample.thinking else 0
            tokens = sample.tokens - thought
            return DrawnAnswer(text, tuple(called), None, tokens, cut, reasoning)

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
            raise too_late("No candidate was complete within the deadline.")
        # one that was cut off says nothing, unless all were
        complete = [candidate for candidate in drawn if not candidate.cut]
        return complete or drawn, "deadline" if late else None

    async def _scored(self, candidates: list[DrawnAnswer]) -> tuple[list[DrawnAnswer], int, int]:
        """The candidates with scores; the verifier's tokens and calls. Equal ones share a score.

        What it writes counts as tokens of the search.
        """
        service, question = self._service, self._asked.problem.question
        delimiter = service.deployment.generator.step_delimiter
        texts = dict.fromkeys(map(self._turn.written, candidates))
        models = service.session.models
        calls = [
            score_calls_of(models, question, steps_of(text, delimiter) or [text])[-1]
            for text in texts
        ]
        results = dict(zip(texts, await service.session.score_calls(calls), strict=True))
        self._critiques = sum(result.tokens for result in results.values())
        scored = [
            replace(each, score=significant(results[self._turn.written(each)].score))
            for each in candidates
        ]
        return scored, sum(len(call.input_ids) for call in calls), len(calls)


def _answer(
    service: Service,
    exchange: Exchange,
    turn: CandidateTurn,
    asked: SearchRequest,
    ballot: _Ballot,
    generated: int,
) -> AnswerPart:
    """The chosen candidate as an answer; `generated`: the tokens of all of them."""
    record, chosen = exchange.record, ballot.chosen
    others = generated - chosen.tokens
    record.answer_tokens, record.search_tokens = chosen.tokens, others
    record.verifier_tokens = ballot.verifier_tokens
    if service.recorder.keeps_prompts:
        record.prompt, record.answer = asked.problem.question, turn.written(chosen)
    search = SearchUsage(ballot.verifier_tokens, asked.n, ballot.verifier_calls, ballot.seconds)
    shows = not service.filters.of_output
    weights = {key: significant(weight) for key, weight in ballot.vote.weights.items()}
    finish = "tool_calls" if chosen.calls else "stop"
    return AnswerPart(
        text=chosen.text or None,
        reasoning=chosen.reasoning,
        calls=chosen.calls,
        finish="length" if chosen.cut else finish,
        tts={
            "strategy": asked.config.strategy,
            "n": asked.n,
            "seed": asked.config.seed,
            "candidates": len(ballot.candidates),
            "votes": weights if shows else None,
            "score": chosen.score,
            "limit": ballot.limit,
            "gateway_ms": record.gateway_ms(),
        },
        end=AnswerEnd(usage_of(record.prompt_tokens, chosen.tokens, others, search)),
    )
