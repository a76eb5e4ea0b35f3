"""A search's turn in a chat with tools: whole candidates, of which votes or the verifier choose.

A call of a tool is one step, which no tree divides. So every strategy draws n whole answers of the
model at a time: calls, or a text. `majority-vote` counts equal ones, the others weigh them by the
verifier's scores. First it is decided whether tools are called, then which calls, or which text:
equal ones add up. Calls are equal if their names and arguments are, whatever the order of keys.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tts.grading import extract_answer
from tts.problem import Problem
from tts.prompting.step_ends import steps_of
from tts.search import significant

from ..call import Call
from ..observability.record import ServedRequest
from ..openai.answers import AnswerEnd, AnswerPart, Encoder, SearchUsage, usage_of
from ..openai.errors import too_late
from ..openai.messages import ToolCall
from ..openai.requests import ChatRequest
from ..output.generation import Sampling
from ..output.running_searches import RunningSearch
from ..tools.conversation import transcript
from .prompts import score_calls_of, with_budget
from .respond import respond_by_search
from .search_request import SearchRequest, read_search_request
from .tool_turns import ToolTurn, reading_calls

UNSCORED = ("majority-vote", "greedy", "confidence-vote")
"""Strategies that ask no verifier."""

MAX_CANDIDATES = 16
"""Candidates that `auto` draws at most."""


@dataclass(frozen=True)
class _Ballot:
    candidates: int
    winner: DrawnAnswer
    weights: dict[str, float]
    limit: str | None
    verifier_tokens: int
    verifier_calls: int
    seconds: float


async def answer_by_candidates(
    call: Call[ChatRequest],
    encoder: Encoder,
    sampling: Sampling,
    turn: ToolTurn | None,
    variables: Mapping[str, Any],
) -> None:
    """Draw candidates for the next message of a chat, choose one, and respond.

    `variables` are those of the chat template, which the prompt was made with.
    """
    generator, record = call.service.generator, call.record
    question = transcript(call.request.messages)
    problem = Problem("solve", question, chat_template_kwargs=variables)
    search = read_search_request(call, problem)
    config = search.plan.strategy.config
    if config:
        budgeted = with_budget(sampling.thinking, config.thinking_budget)
        sampling = replace(sampling, thinking=budgeted)
    if config and config.TAKES_BUDGET:  # its n is a bound for votes that end it, and none do here
        search = replace(search, n=min(search.n, MAX_CANDIDATES))
    (prompt,) = sampling.prompts
    behind = generator.models.generator.encode(sampling.lead) if sampling.lead else ()
    room = generator.room(len(prompt) + len(behind), call.request.limit)
    if config:
        room = min(room, config.max_tokens)
    if budget := search.config.limits.budget_tokens:
        room = max(1, min(room, budget // search.n))
    call.admit(len(prompt) + search.n * room, search=True)
    record.prompt_tokens = len(prompt)

    def start() -> _Draw:
        return _Draw(call, sampling, turn, search, room)

    async def answer(draw: RunningSearch[_Ballot], ballot: _Ballot) -> AnswerPart:
        return _answer(call, turn, search, ballot, draw.tokens)

    await respond_by_search(call, encoder, start, answer)


def _text(turn: ToolTurn | None, candidate: DrawnAnswer) -> str:
    tool_calls = [
        (each.function.name, msgspec.json.decode(each.function.arguments))
        for each in candidate.calls
    ]
    in_form = turn.form.write(tool_calls) if turn and tool_calls else ""
    return "\n".join(filter(None, (candidate.text, in_form)))


class _Draw(RunningSearch[_Ballot]):
    """The candidates of one call, or of several that are the same."""

    def __init__(
        self,
        call: Call[ChatRequest],
        sampling: Sampling,
        turn: ToolTurn | None,
        search: SearchRequest,
        room: int,
    ) -> None:
        """`room`: how many tokens a candidate has at most. The call is not kept."""
        service, request = call.service, call.request
        self._service = service
        self._turn = turn
        self._search = search
        self._id = call.record.id
        """The beginning of names by which replicas are chosen: each candidate stays on one."""
        config = search.plan.strategy.config
        names = ("temperature", "top_p", "top_k", "min_p") if config else ()
        own = {name: getattr(config, name) for name in names}
        sampled = msgspec.structs.replace(request, n=search.n, seed=search.config.seed, **own)
        self._generate_calls = service.generator.calls(sampled, sampling, [room], charged=True)
        self._samples = [
            service.generator.sample(0, each, request, sampling) for each in self._generate_calls
        ]
        self._critiques = 0
        """Tokens that the verifier wrote."""
        super().__init__(lambda _: self._outcome())

    @property
    def tokens(self) -> int:
        """Tokens of all candidates so far, complete or not."""
        return sum(sample.tokens for sample in self._samples) + self._critiques

    async def _outcome(self) -> _Ballot:
        began = time.monotonic()
        candidates, limit = await self._candidates()
        tokens = calls = 0
        if self._search.config.strategy not in UNSCORED:
            candidates, tokens, calls = await self._scored(candidates)
        winner, weights = vote(candidates)
        seconds = round(time.monotonic() - began, 6)
        return _Ballot(len(candidates), candidates[winner], weights, limit, tokens, calls, seconds)

    async def _candidates(self) -> tuple[list[DrawnAnswer], str | None]:
        """All candidates, or those that are complete at the deadline."""
        tasks = [
            asyncio.ensure_future(self._candidate(place)) for place in range(len(self._samples))
        ]
        try:
            finished, late = await asyncio.wait(
                tasks,
                timeout=self._search.config.limits.deadline_s,
                return_when=asyncio.FIRST_EXCEPTION,
            )
            failures = [error for task in finished if (error := task.exception())]
            if failures:
                raise failures[0]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        candidates = [task.result() for task in tasks if task in finished]
        if not candidates:
            raise too_late("No candidate was complete within the deadline.")
        # one that was cut off says nothing, unless all were
        complete = [candidate for candidate in candidates if not candidate.cut]
        return complete or candidates, "deadline" if late else None

    async def _candidate(self, place: int) -> DrawnAnswer:
        sample, turn = self._samples[place], self._turn
        # none of a client's: clients come and go
        record = ServedRequest(id=f"{self._id}-{place}", endpoint="", time=0.0, t0=0.0)
        deltas = self._service.generator.deltas(
            self._generate_calls[place], sample, record, record.id
        )
        text, reasoning, tool_calls = "", "", list[ToolCall]()
        if turn:
            deltas = reading_calls(deltas, turn, 1)
        async with aclosing(deltas):
            async for delta in deltas:
                self.replica = record.replica or self.replica
                text += delta.text
                reasoning += delta.reasoning
                tool_calls += delta.calls
        cut = sample.finish == "length" or sample.thinks
        tokens = sample.tokens - sample.thought_tokens
        return DrawnAnswer(text, tuple(tool_calls), None, tokens, cut, reasoning)

    async def _scored(self, candidates: list[DrawnAnswer]) -> tuple[list[DrawnAnswer], int, int]:
        """The candidates with scores, which equal ones share; the verifier's tokens and calls."""
        session, question = self._service.session, self._search.problem.question
        delimiter = self._service.deployment.generator.step_delimiter
        texts = [_text(self._turn, each) for each in candidates]
        paths = {text: steps_of(text, delimiter) or [text] for text in texts}
        calls = [score_calls_of(session.models, question, steps)[-1] for steps in paths.values()]
        results = dict(zip(paths, await session.score_calls(calls), strict=True))
        self._critiques = sum(result.tokens for result in results.values())
        scored = [
            replace(each, score=significant(results[text].score))
            for each, text in zip(candidates, texts, strict=True)
        ]
        return scored, sum(len(each.input_ids) for each in calls), len(calls)


def _answer(
    call: Call[ChatRequest],
    turn: ToolTurn | None,
    search: SearchRequest,
    ballot: _Ballot,
    generated: int,
) -> AnswerPart:
    """The chosen candidate as an answer; `generated`: the tokens of all of them."""
    record, winner = call.record, ballot.winner
    others = generated - winner.tokens
    record.answer_tokens, record.search_tokens = winner.tokens, others
    record.verifier_tokens = ballot.verifier_tokens
    if call.service.recorder.keeps_prompts:
        record.prompt, record.answer = search.problem.question, _text(turn, winner)
    usage = SearchUsage(ballot.verifier_tokens, search.n, ballot.verifier_calls, ballot.seconds)
    shows = not call.service.filters.of_output
    weights = {key: significant(weight) for key, weight in ballot.weights.items()}
    finish = "tool_calls" if winner.calls else "stop"
    return AnswerPart(
        text=winner.text or None,
        reasoning=winner.reasoning,
        calls=winner.calls,
        finish="length" if winner.cut else finish,
        tts={
            "strategy": search.config.strategy,
            "n": search.n,
            "seed": search.config.seed,
            "candidates": ballot.candidates,
            "votes": weights if shows else None,
            "score": winner.score,
            "limit": ballot.limit,
            "gateway_ms": record.gateway_ms(),
        },
        end=AnswerEnd(usage_of(record.prompt_tokens, winner.tokens, others, usage)),
    )


@dataclass(frozen=True)
class DrawnAnswer:
    """One whole answer of the model."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    score: float | None = None
    tokens: int = 0
    """Tokens of the answer, without its thinking."""
    cut: bool = False
    """Whether the limit of its tokens ended it, or it never came to its answer."""
    reasoning: str = ""

    @property
    def key(self) -> str:
        """A value that equal candidates share."""
        if self.calls:
            return "\n".join(map(canonical, self.calls))
        try:
            return json.dumps(json.loads(self.text), sort_keys=True)
        except (ValueError, RecursionError):
            return extract_answer(self.text) or self.text.strip()


def canonical(call: ToolCall) -> str:
    """A call as it is compared and counted."""
    arguments = json.loads(call.function.arguments)
    return f"{call.function.name}({json.dumps(arguments, sort_keys=True, ensure_ascii=False)})"


def vote(candidates: Sequence[DrawnAnswer]) -> tuple[int, dict[str, float]]:
    """The place of the best candidate of the heaviest key, of equals the first; all weights."""
    weights = [1.0 if each.score is None else each.score for each in candidates]
    calling = sum(w for w, each in zip(weights, candidates, strict=True) if each.calls)
    calls = calling > sum(weights) - calling
    if not any(weights):
        calls = bool(candidates[0].calls)
    voters = [place for place, each in enumerate(candidates) if bool(each.calls) == calls]
    keys = {place: candidates[place].key for place in voters}
    totals = dict.fromkeys(keys.values(), 0.0)
    for place, key in keys.items():
        totals[key] += weights[place]
    best = max(totals, key=lambda key: totals[key])
    places = (place for place, key in keys.items() if key == best)
    return max(places, key=lambda place: weights[place]), totals
