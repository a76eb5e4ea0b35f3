"""A search as an answer: which one a request asks for, its progress, what has come out."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from tts.problem import Problem
from tts.search import significant
from tts.session import Result, Step
from tts.session.strategy import choose

from .exchange import Exchange
from .openai.answers import Answer, SearchUsage, TokenDetails, Usage
from .openai.errors import ApiError, bad_request
from .openai.events import DONE, KEEP_ALIVE, Events
from .openai.requests import ChatMessage, Request, SearchOptions
from .page import kept_reports
from .plain import Form
from .prompts import filter_messages, problem_of, require_length, search_prompt
from .reading import admit
from .running_search import RunningSearch, StepNote
from .service import Service

DEFAULT_STRATEGY = "beam-search"
KEEP_ALIVE_S = 10.0
"""After so long without a word a stream gets a comment, or proxies would end it."""
_ANNOUNCED = (b"x-stainless-read-timeout", b"x-stainless-timeout")
"""Headers in which OpenAI's clients say how long they wait for an answer, in seconds."""
_TO_GET_THERE_S = 1.0
"""Of what a client waits: for the answer to reach it."""


@dataclass(frozen=True)
class _Wanted:
    """What is searched, as a request says."""

    problem: Problem
    strategy: str
    parameters: dict[str, Any]
    seed: int
    budget_tokens: int | None
    deadline_s: float
    n: int


def wants_search(request: Request, strategy: str | None) -> bool:
    """Whether a request asks for a search: by the model's name, or by its fields."""
    options = request.tts
    return bool(
        strategy
        or request.budget
        or (options and (options.strategy or options.n or options.budget))
    )


async def answer(
    service: Service,
    exchange: Exchange,
    request: Request,
    strategy: str | None,
    messages: Sequence[ChatMessage],
    body: bytes,
    form: Form,
) -> None:
    """Search for an answer to a conversation, or join the search that does, and respond."""
    models, context = service.session.models, service.generator.context
    characters = require_length(models.generator, context, *(each.text for each in messages))
    await filter_messages(service.filters, messages)
    wanted = _wanted(service, exchange, request, strategy, problem_of(messages))
    prompt = await search_prompt(models, wanted.problem, characters)
    record = exchange.record
    record.strategy, record.prompt_tokens = wanted.strategy, len(prompt)
    room = service.generator.room(prompt.tolist(), request.limit)
    most = len(prompt) + (wanted.budget_tokens or wanted.n * room)
    admit(service, exchange, most, search=True)
    name = exchange.header(b"idempotency-key")
    key = _key(exchange, name, body)
    search = service.joining.join(key, lambda: _start(service, wanted), named=name is not None)
    record.t2 = time.monotonic()
    try:
        work = _Work(service, exchange, request, form, wanted, search, len(prompt))
        await (work.stream() if request.stream else work.whole())
    finally:
        record.replica = search.replica
        if not record.answer_tokens + record.search_tokens:  # nobody waited for its end
            record.search_tokens = search.tokens
        service.joining.leave(key, search)


def _wanted(
    service: Service, exchange: Exchange, request: Request, strategy: str | None, problem: Problem
) -> _Wanted:
    _refuse(request)
    options = request.tts or SearchOptions()
    if strategy and options.strategy not in (None, strategy):
        raise bad_request(
            f"The model's name says {strategy}, tts.strategy says {options.strategy}.",
            "tts.strategy",
        )
    strategy = strategy or options.strategy or DEFAULT_STRATEGY
    counts = {n for n in (options.n, options.budget, request.budget) if n is not None}
    if len(counts) > 1:
        raise bad_request("tts.n and budget say the same with different numbers.", "budget")
    parameters = dict(options.parameters)
    given = {
        "n": next(iter(counts), None),
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.limit,
    }
    for parameter, value in given.items():
        if value is not None:
            if parameter in parameters:
                raise bad_request(f"{parameter} is given twice.", f"tts.parameters.{parameter}")
            parameters[parameter] = value
    config = choose(strategy, service.deployment, parameters).config
    n = config.n if config else 1
    if n > service.settings.max_n:
        raise bad_request(
            f"n is {n}; this gateway allows {service.settings.max_n} completions of a search.",
            "tts.n",
        )
    seed = options.seed if options.seed is not None else request.seed or 0
    deadline = _deadline(service, exchange, request, options)
    return _Wanted(problem, strategy, parameters, seed, options.budget_tokens, deadline, n)


def _refuse(request: Request) -> None:
    """Refuse what plain generation honours and a search cannot."""
    for name, given in (
        ("n", request.n > 1),
        ("stop", bool(request.stops)),
        ("stop_token_ids", bool(request.stop_token_ids)),
        ("top_k", (request.top_k or 0) > 0),
        ("ignore_eos", request.ignore_eos),
        ("logprobs", getattr(request, "logprobs", None) not in (None, False)),
        ("echo", getattr(request, "echo", False)),
        ("continue_final_message", getattr(request, "continue_final_message", False)),
    ):
        if given:
            hint = " How many completions it makes is tts.n." if name == "n" else ""
            raise bad_request(
                f"{name} has no meaning for a search.{hint}", name, "unsupported_parameter"
            )


def _deadline(
    service: Service, exchange: Exchange, request: Request, options: SearchOptions
) -> float:
    """Seconds: the least of ours, the request's, and what its client waits for an answer."""
    limits = [service.settings.deadline_s]
    if options.deadline_s is not None:
        limits.append(options.deadline_s)
    if not request.stream:  # in a stream it waits so long for each chunk
        for name in _ANNOUNCED:
            try:
                announced = float(exchange.header(name) or "nan")
            except ValueError:
                continue
            if announced > 0:
                limits.append(max(announced - _TO_GET_THERE_S, announced / 2))
    return min(limits)


def _key(exchange: Exchange, name: str | None, body: bytes) -> tuple[str | None, str, bytes]:
    """What makes a request the same as another: the API key, and its name or its body."""
    key = exchange.key.id if exchange.key else None
    what = exchange.path + (f"\0{name}" if name is not None else "")
    return key, what, hashlib.sha256(body).digest()


def _start(service: Service, wanted: _Wanted) -> RunningSearch:
    def solve(on_step: Callable[[Step], None], on_server: Callable[[str], None]) -> Any:
        return service.session.solve(
            wanted.problem,
            strategy=wanted.strategy,
            seed=wanted.seed,
            on_step=on_step,
            on_server=on_server,
            budget_tokens=wanted.budget_tokens,
            deadline_s=wanted.deadline_s,
            **wanted.parameters,
        )

    return RunningSearch(solve)


class _Work:
    """What a response is made from."""

    def __init__(
        self,
        service: Service,
        exchange: Exchange,
        request: Request,
        form: Form,
        wanted: _Wanted,
        search: RunningSearch,
        prompt_tokens: int,
    ) -> None:
        self._service = service
        self._exchange = exchange
        self._request = request
        self._form = form
        self._wanted = wanted
        self._search = search
        self._prompt_tokens = prompt_tokens
        self._id = form.prefix + secrets.token_hex(12)
        self._created = int(time.time())

    async def whole(self) -> None:
        """Respond when the search has ended."""
        result = await self._search.result()
        self._answered()
        text, finish = self._text(result)
        self._exchange.record.t4 = time.monotonic()
        choice = self._form.choice(0, text, finish, None)
        answer = Answer(
            self._id,
            self._form.object,
            self._created,
            self._request.model,
            [choice],
            self._usage(result),
            await self._outcome(result),
        )
        if not self._request.return_response_only:
            answer.metadata = _metadata(result, self._wanted.strategy)
        await self._exchange.respond(msgspec.json.encode(answer))

    async def stream(self) -> None:
        """Respond with progress as it comes, then with the answer."""
        exchange, search = self._exchange, self._search
        exchange.record.stream = True
        counts = self._request.stream_options.include_usage
        events = Events(
            self._id, self._form.chunk, self._created, self._request.model, usage=counts
        )
        async with aclosing(search.progress(KEEP_ALIVE_S)) as progress:
            async for steps in progress:
                if exchange.record.t5 is None:
                    self._answered()
                    exchange.record.t4 = time.monotonic()
                    await exchange.start_events()
                    await exchange.event(events.role(0) if self._chats else KEEP_ALIVE)
                await exchange.event(self._progress(events, steps) if steps else KEEP_ALIVE)
        result = await search.result()
        if exchange.record.t5 is None:
            self._answered()
            await exchange.start_events()
        text, finish = self._text(result)
        usage, outcome = self._usage(result), await self._outcome(result)
        data = events.text(0, text) + events.choice(0, "", finish=finish, tts=outcome)
        if counts:
            data += events.usage(usage)
        await exchange.end_events(data + DONE)

    @property
    def _chats(self) -> bool:
        return self._form.prefix == "chatcmpl-"

    def _answered(self) -> None:
        record = self._exchange.record
        record.t3 = record.t3 or time.monotonic()

    def _progress(self, events: Events, steps: list[Step]) -> bytes:
        """What a stream says of new steps. With filters of answers no text of theirs is told."""
        options = self._request.tts
        how = (options.progress if options else None) or "steps"
        told = not self._service.filters.of_output
        if how == "reasoning" and told:
            lines = [f"{step}\n" for step in steps if step.score is not None]
            return events.reasoning("".join(lines)) if lines and self._chats else KEEP_ALIVE
        if how == "steps":
            notes = [
                StepNote(step.node, None, significant(step.score))
                if step.score is not None
                else StepNote(step.node, step.text if told else None)
                for step in steps
            ]
            best = self._search.best if told else None
            return events.progress({"steps": notes, "best": best})
        return KEEP_ALIVE

    def _text(self, result: Result) -> tuple[str, str]:
        """The completion that the answer stands in, and why it ends."""
        if not result.completions:
            raise ApiError(504, "The search has ended without any completion.")
        text = _chosen(result)[1].text
        stream = self._service.filters.output()
        text = stream.feed(text) + stream.end()
        if self._service.observer.keeps_prompts:
            self._exchange.record.prompt = _transcript(self._wanted.problem)
            self._exchange.record.answer = text
        return text, "length" if result.limit else "stop"

    def _usage(self, result: Result) -> Usage:
        """True counts: all that was generated, of which the answer is a part."""
        used = result.usage
        _, completion = _chosen(result)
        nodes = result.tree.chain(completion.node) if result.tree else []
        in_answer = sum(len(node.thought.token_ids) for node in nodes if node.thought)
        others = max(0, used.generated_tokens - in_answer)
        record = self._exchange.record
        record.answer_tokens, record.search_tokens = in_answer, others
        record.verifier_tokens = used.verifier_tokens
        generated = in_answer + others
        return Usage(
            self._prompt_tokens,
            generated,
            self._prompt_tokens + generated,
            TokenDetails(others),
            SearchUsage(
                used.verifier_tokens, used.generator_calls, used.verifier_calls, used.seconds
            ),
        )

    async def _outcome(self, result: Result) -> dict[str, Any]:
        """The field `tts` of the answer."""
        _, chosen = _chosen(result)
        own = self._exchange.record.own_latency_s()
        shown = not self._service.filters.of_output
        outcome = {
            "strategy": self._wanted.strategy,
            "n": self._wanted.n,
            "seed": self._wanted.seed,
            "answer": result.answer if shown else None,
            "answers": result.answers if shown else None,
            "vote": result.vote,
            "score": None if chosen.score is None else significant(chosen.score),
            "completions": len(result.completions),
            "limit": result.limit,
            "tree_digest": result.tree_digest,
            "gateway_ms": None if own is None else round(1000 * own, 3),
        }
        if shown and self._request.tts and self._request.tts.report:
            names = ("strategy", "n", "seed", "vote", "tree_digest")
            facts = {"model": self._request.model, **{name: outcome[name] for name in names}}
            outcome["report"] = await kept_reports.keep(self._search, result, facts)
        return outcome


def _transcript(problem: Problem) -> str:
    """What a search was asked, for the log of requests."""
    return "\n\n".join([*(turn.content for turn in problem.history), problem.question])


def _chosen(result: Result) -> tuple[int, Any]:
    """The best completion that has the answer, with its rank; the best of all without an answer."""
    for rank, completion in enumerate(result.completions):
        if completion.answer is not None and completion.answer == result.answer:
            return rank, completion
    return 0, result.completions[0]


def _metadata(result: Result, strategy: str) -> dict[str, Any]:
    """As its_hub's server describes what the answer was chosen from."""
    return {
        "algorithm": strategy,
        "all_responses": [
            {"role": "assistant", "content": each.text} for each in result.completions
        ],
        "response_counts": Counter(
            each.answer for each in result.completions if each.answer is not None
        ),
        "selected_index": _chosen(result)[0],
    }
