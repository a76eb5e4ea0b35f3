"""A search as the answer to a request: begun or joined, told while it goes on, then whole.

request ──► SearchRequest ──► RunningSearches: the same is run once ──► parts ──► respond
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from tts.build.thinking import Thinking
from tts.problem import Problem
from tts.prompting.chat import takes_system
from tts.runs.records import CompletionRecord
from tts.search import NodePath, Tree, significant
from tts.session import Result, Step
from tts.session.doubts import doubts

from ..exchange import Exchange
from ..openai.answers import AnswerEnd, AnswerPart, Encoder, SearchUsage, TokenUsage, usage_of
from ..openai.errors import NO_RETRY, ApiError
from ..openai.messages import ChatMessage
from ..openai.requests import Request
from ..output.running_searches import R, RunningSearch, StepNote
from ..output.sample_text import StopStrings
from ..service import Service, admit
from .closing import ClosingAnswer
from .prompts import filter_messages, form_read, problem_of, require_length, search_prompt
from .respond import respond
from .search_request import SearchRequest, read_search_request
from .structured import OutputForm

KEEP_ALIVE_S = 10.0
"""An idle stream gets a comment after this time, or proxies would end it."""


async def answer_by_search(
    service: Service,
    exchange: Exchange,
    request: Request,
    strategy: str | None,
    messages: Sequence[ChatMessage],
    body: bytes,
    encoder: Encoder,
    wanted: OutputForm | None = None,
    variables: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Search for an answer to a conversation, or join the search that does, and respond.

    `wanted` is the form of the answer, `variables` are those of the chat template.
    """
    record, context = exchange.record, service.generator.context
    models = service.session.models.asked_with(variables)
    # 1. What is asked, as the filters let it pass.
    characters = require_length(models.generator, context, *(each.text for each in messages))
    await filter_messages(service.filters, messages)
    problem = replace(problem_of(messages), chat_template_kwargs=variables)

    def read() -> SearchRequest:
        held = wanted.in_box if wanted else None
        return read_search_request(service, exchange, request, strategy, problem, held)

    given = request.tts.parameters if request.tts else {}
    has_form = wanted or given.keys() & {"answer_regex", "answer_schema"}
    asked = await form_read(read) if has_form else read()
    # 2. What it may take, charged to the key.
    prompt = await search_prompt(models, asked.problem, characters)
    thinking = models.thinking_about(asked.problem)
    record.strategy = asked.config.strategy
    room = service.generator.room(prompt.tolist(), request.limit)
    if thinking and request.limit:  # which bounds the answer; the thinking has its budget
        budget = asked.config.parameters.get("thinking_budget") or thinking.budget
        whole = service.generator.room(prompt.tolist(), None)
        room = min(whole, room + (budget or room))
    most = asked.config.limits.budget_tokens or asked.n * room
    admit(service, exchange, len(prompt) + most, search=True)
    record.prompt_tokens = len(prompt)
    # 3. The search, which others may have asked for, too, and the response.
    closing = None
    if wanted:
        until = time.monotonic() + asked.deadline_s
        closing = ClosingAnswer(
            service, exchange, request, prompt.tolist(), wanted, until, thinking
        )
    answer = _SearchAnswer(service, exchange, request, asked, closing, thinking)
    start = partial(_start, service, asked)
    await join_and_respond(
        service, exchange, request, encoder, body, start, answer.of, answer.progress
    )


async def join_and_respond(
    service: Service,
    exchange: Exchange,
    request: Request,
    encoder: Encoder,
    body: bytes,
    start: Callable[[], RunningSearch[R]],
    told: Callable[[RunningSearch[R], R], Awaitable[AnswerPart]],
    progress: Callable[[RunningSearch[R], list[Step]], AnswerPart] = lambda *_: AnswerPart(),
) -> None:
    """Respond with the search that a request begins, or with the same one that runs.

    `told` makes the answer of its result, and may raise ApiError; `progress` what a stream tells of
    new steps.
    """
    record = exchange.record
    name = exchange.header(b"idempotency-key")
    key = _identity(exchange, name, body)
    search = service.searches.join(key, start, named=name is not None)
    record.t2 = time.monotonic()

    async def parts() -> AsyncGenerator[AnswerPart, None]:
        if request.stream:
            async with aclosing(search.progress(KEEP_ALIVE_S)) as all_steps:
                async for steps in all_steps:
                    record.t3 = record.t3 or time.monotonic()
                    yield progress(search, steps)
        result = await search.result()
        record.t3 = record.t3 or time.monotonic()
        yield await told(search, result)

    try:
        await respond(exchange, encoder, parts(), stream=request.stream)
    finally:
        record.replica = search.replica
        if not record.answer_tokens + record.search_tokens:  # nobody waited for its end
            record.search_tokens = search.tokens
        service.searches.leave(key, search)


def _identity(exchange: Exchange, name: str | None, body: bytes) -> tuple[str | None, str, bytes]:
    """What makes a request the same as another: the API key, and its name or its body."""
    key = exchange.key.id if exchange.key else None
    what = exchange.path + (f"\0{name}" if name is not None else "")
    return key, what, hashlib.sha256(body).digest()


def _start(service: Service, asked: SearchRequest) -> RunningSearch[Result]:
    def solve(on_step: Callable[[Step], None], on_server: Callable[[str], None]) -> Any:
        plan = replace(asked.plan, on_step=on_step, on_server=on_server)
        return service.session.solve_planned(plan)

    return RunningSearch(solve)


class _SearchAnswer:
    """Tells one client of a search that it has asked for."""

    def __init__(
        self,
        service: Service,
        exchange: Exchange,
        request: Request,
        asked: SearchRequest,
        closing: ClosingAnswer | None,
        thinking: Thinking | None,
    ) -> None:
        """`closing` gives the answer the form that was asked for."""
        self._service = service
        self._exchange = exchange
        self._request = request
        self._asked = asked
        self._closing = closing
        self._thinking = thinking
        self._told = set[NodePath]()
        """Nodes of thinking that a stream has told, each before the steps below it."""
        self._shows_texts = not service.filters.of_output
        """Where answers are filtered, no text is told that has not been through the filters."""

    def progress(self, search: RunningSearch[Result], steps: list[Step]) -> AnswerPart:
        """What a stream tells of new steps."""
        options = self._request.tts
        how = (options.progress if options else None) or "steps"
        if how == "reasoning" and self._shows_texts:
            scored = [step for step in steps if step.score is not None]
            told = [(self._thought(step.tree, step.node), str(step)) for step in scored]
            lines = [f"{line}\n" for lines in told for line in lines if line]
            return AnswerPart(reasoning="".join(lines))
        if how == "steps" and steps:
            notes = [
                StepNote(step.node, None, significant(step.score))
                if step.score is not None
                else StepNote(step.node, step.text if self._shows_texts else None)
                for step in steps
            ]
            best = search.best if self._shows_texts else None
            return AnswerPart(tts={"steps": notes, "best": best})
        return AnswerPart()

    async def of(self, search: RunningSearch[Result], result: Result) -> AnswerPart:
        """The answer, and before it the text that leads to it, if that stands apart."""
        record = self._exchange.record
        record.search_tokens = result.usage.tokens  # also if there will be no answer
        if not result.completions:
            raise ApiError(
                504,
                "The search has ended without any completion. Give it more tokens "
                "(tts.budget_tokens) or more time (tts.deadline_s), or a smaller n.",
                code="no_completion",
                headers=NO_RETRY,
            )
        chosen = _chosen(result)
        text, finish = chosen.text, "length" if result.limit else "stop"
        thought = self._thought(result.tree, chosen.node)
        if result.tree is None:
            thought = self._without_mark(chosen.thinking)
        reasoning = self._filtered(thought)
        if self._closing:
            reasoning = "\n\n".join(filter(None, (reasoning, self._filtered(chosen.text))))
            text, finish = await self._closing.of(chosen.text, _ids(result))
        include = self._request.include_stop_str_in_output
        stops = StopStrings(self._request.stops, include=include)
        text = self._filtered(stops.push(text) + stops.finish())
        if self._service.recorder.keeps_prompts:
            record.prompt = _transcript(self._asked.problem)
            record.answer = "\n\n".join(filter(None, (reasoning, text)))
        end = AnswerEnd(self._usage(result))
        if not self._request.return_response_only:
            end.metadata = _metadata(result, self._asked.config.strategy)
        return AnswerPart(
            text=text,
            reasoning=reasoning,
            finish=finish if stops.stopped is None else "stop",
            tts=self._outcome(result),
            end=end,
        )

    def _thought(self, tree: Tree | None, node: NodePath) -> str:
        """The thinking of a chain, as far as it has not been told."""
        if tree is None or tree.get(node) is None:
            return ""
        thoughts = {each.path: each.thought for each in tree.chain(node)}
        new = {path: each.text for path, each in thoughts.items() if each and each.thinking}
        said = "".join(text for path, text in new.items() if path not in self._told)
        self._told.update(new)
        return self._without_mark(said)

    def _without_mark(self, thought: str) -> str:
        """Thinking as it is told: without the mark that closes it, and what stands behind that."""
        if self._thinking is None:
            return thought
        for mark in map(self._thinking.tokenizer.decode, self._thinking.stop_words):
            thought = thought.partition(mark)[0] if mark else thought
        return thought.strip()

    def _filtered(self, text: str) -> str:
        """A text as the filters let it pass; raises ContentBlocked."""
        stream = self._service.filters.output()
        return stream.feed(text) + stream.end()

    def _usage(self, result: Result) -> TokenUsage:
        """True counts: all generated tokens, the answer's and the others'."""
        used = result.usage
        in_answer = len(_ids(result, thinking=False))
        others = max(0, used.tokens - in_answer)
        in_answer += self._closing.tokens if self._closing else 0
        record = self._exchange.record
        record.answer_tokens, record.search_tokens = in_answer, others
        record.verifier_tokens = used.verifier_tokens
        seconds = round(used.seconds, 6)
        search = SearchUsage(
            used.verifier_tokens, used.generator_calls, used.verifier_calls, seconds
        )
        return usage_of(record.prompt_tokens, in_answer, others, search)

    def _outcome(self, result: Result) -> dict[str, Any]:
        """The field `tts` of the answer."""
        chosen = _chosen(result)
        return {
            "strategy": self._asked.config.strategy,
            "n": self._asked.n,
            "seed": self._asked.config.seed,
            "answer": result.answer if self._shows_texts else None,
            "answers": result.answers if self._shows_texts else None,
            "node": list(chosen.node),
            "vote": result.vote,
            "score": None if chosen.score is None else significant(chosen.score),
            "completions": len(result.completions),
            "limit": result.limit,
            "tree_digest": result.tree_digest,
            "gateway_ms": self._exchange.record.gateway_ms(),
            "warnings": self._warnings(chosen),
        }

    def _warnings(self, chosen: CompletionRecord) -> list[str]:
        problem, models = self._asked.problem, self._service.session.models
        found = doubts(
            self._service.deployment, problem.question, chosen.judged, chosen.probability
        )
        system = any(turn.role == "system" for turn in problem.history)
        if system and not takes_system(models.generator):
            found.append(
                "The model's chat template has no system role: what the system says stood in front "
                "of the question."
            )
        config = self._asked.plan.strategy.config
        if config and config.n > 1 and config.temperature == 0:
            found.append("The temperature is 0: all chains of this search are equal.")
        return found


def _transcript(problem: Problem) -> str:
    """A search's request, for the request log."""
    return "\n\n".join([*(turn.content for turn in problem.history), problem.question])


def _chosen(result: Result) -> CompletionRecord:
    """The completion that the answer stands in, of a result with completions."""
    assert result.chosen is not None
    return result.chosen


def _ids(result: Result, *, thinking: bool = True) -> list[int]:
    """The tokens of the chosen completion, with its thinking or without."""
    nodes = result.tree.chain(_chosen(result).node) if result.tree else []
    thoughts = (node.thought for node in nodes if node.thought)
    return [token for each in thoughts if thinking or not each.thinking for token in each.token_ids]


def _metadata(result: Result, strategy: str) -> dict[str, Any]:
    """The candidates of the answer, as its_hub's server describes them."""
    return {
        "algorithm": strategy,
        "all_responses": [
            {"role": "assistant", "content": each.text} for each in result.completions
        ],
        "response_counts": Counter(
            each.answer for each in result.completions if each.answer is not None
        ),
        "selected_index": result.completions.index(_chosen(result)),
    }
