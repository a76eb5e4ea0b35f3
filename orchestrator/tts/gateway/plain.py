"""Plain generation as a response: whole, or token by token."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from tts.compat.aio import timeout

from .choice import Choice
from .exchange import Exchange
from .generation import Delta, TextGenerator
from .openai.answers import Answer, ChatChoice, Message, TextChoice, usage_of
from .openai.errors import ApiError, bad_request
from .openai.events import CHAT_CHUNK, DONE, TEXT_CHUNK, Events
from .openai.requests import Request
from .reading import admit
from .service import Service


class Form(Protocol):
    """In what completions and chat differ, once prompts are token ids."""

    object: str
    chunk: str
    prefix: str
    chats: bool
    """Whether the answer is a message of a chat, which begins by naming its role."""

    def choice(self, index: int, text: str, finish: str, logs: list[Any] | None) -> Any:
        """A whole choice."""

    def logprobs(self, tokens: Sequence[str], log_probs: Sequence[float], offset: int) -> Any:
        """The log-probabilities of some tokens."""


class TextForm:
    """`/v1/completions`."""

    object = "text_completion"
    chunk = TEXT_CHUNK
    prefix = "cmpl-"
    chats = False

    def choice(self, index: int, text: str, finish: str, logs: Any) -> TextChoice:
        """See Form."""
        return TextChoice(index, text, finish, logs)

    def logprobs(self, tokens: Sequence[str], log_probs: Sequence[float], offset: int) -> Any:
        """See Form."""
        offsets = []
        for token in tokens:
            offsets.append(offset)
            offset += len(token)
        return {
            "tokens": list(tokens),
            "token_logprobs": list(log_probs),
            "top_logprobs": None,
            "text_offset": offsets,
        }


class ChatForm:
    """`/v1/chat/completions`."""

    object = "chat.completion"
    chunk = CHAT_CHUNK
    prefix = "chatcmpl-"
    chats = True

    def choice(self, index: int, text: str, finish: str, logs: Any) -> ChatChoice:
        """See Form."""
        return ChatChoice(index, Message(text), finish, logs)

    def logprobs(self, tokens: Sequence[str], log_probs: Sequence[float], offset: int) -> Any:
        """See Form."""
        return {
            "content": [
                {
                    "token": token,
                    "logprob": log_prob,
                    "bytes": list(token.encode()),
                    "top_logprobs": [],
                }
                for token, log_prob in zip(tokens, log_probs, strict=True)
            ],
            "refusal": None,
        }


async def answer(
    service: Service,
    exchange: Exchange,
    request: Request,
    prompts: Sequence[list[int]],
    form: Form,
    *,
    key: str,
    logs: bool = False,
    echo: Sequence[str] = (),
) -> None:
    """Generate n choices for each prompt, and respond. `echo` is put before the choices of each.

    `key` names the conversation, which stays on one replica.
    """
    if logs and service.filters.of_output:
        raise bad_request(
            "logprobs are not given here: answers are filtered, and they would tell what was.",
            "logprobs",
            "unsupported_parameter",
        )
    generator = service.generator
    limits = [generator.room(prompt, request.limit) for prompt in prompts]
    calls = generator.calls(prompts, request, limits, logs=logs)
    choices = [generator.choice(index, call, request) for index, call in enumerate(calls)]
    admit(service, exchange, sum(limits) * request.n + sum(map(len, prompts)), search=False)
    responding = _stream if request.stream else _whole
    prefixes = [text for text in echo for _ in range(request.n)] or [""] * len(calls)
    exchange.record.prompt_tokens = prompt_tokens = sum(map(len, prompts))
    deltas = generator.merged(calls, choices, exchange.record, key)
    keeps = service.observer.keeps_prompts
    if keeps:
        tokenizer = generator.models.generator
        exchange.record.prompt = "\n\n".join(tokenizer.decode(prompt) for prompt in prompts)
    work = _Work(
        exchange,
        generator,
        request,
        deltas,
        choices,
        form,
        prefixes,
        prompt_tokens,
        logs,
        keeps,
    )
    limit_s = service.settings.deadline_s
    try:
        async with timeout(limit_s):
            await responding(work)
    except TimeoutError:
        raise ApiError(
            504, f"The answer was not complete within {limit_s:g} s.", code="deadline_exceeded"
        ) from None
    finally:
        work.count()  # also of an answer that its client did not wait for


@dataclass
class _Work:
    """What a response is made from."""

    exchange: Exchange
    generator: TextGenerator
    request: Request
    deltas: AsyncGenerator[Delta, None]
    choices: Sequence[Choice]
    form: Form
    prefixes: Sequence[str]
    prompt_tokens: int
    logs: bool
    keeps_prompts: bool
    id: str = field(init=False)
    created: int = field(init=False)
    texts: list[str] = field(init=False)
    """Of all choices so far, where somebody will ask for them."""

    def __post_init__(self) -> None:
        self.id = self.form.prefix + secrets.token_hex(12)
        self.created = int(time.time())
        self.texts = list(self.prefixes)

    def take(self, delta: Delta) -> None:
        """Keep what a delta adds."""
        if self.keeps_prompts or not self.request.stream:
            self.texts[delta.choice.index] += delta.text

    def count(self) -> None:
        """Keep the tokens so far in the request's record, and the answer if that is wanted."""
        if self.keeps_prompts:
            self.exchange.record.answer = "\n\n".join(self.texts)
        self.exchange.record.answer_tokens = sum(choice.tokens for choice in self.choices)

    @property
    def usage(self) -> Any:
        """Tokens so far."""
        return usage_of(self.prompt_tokens, sum(choice.tokens for choice in self.choices))

    def logprobs(self, delta: Delta, offset: int) -> Any:
        """Of a delta's tokens; None if nobody asked."""
        if not self.logs:
            return None
        texts = self.generator.models.generator.token_texts
        return self.form.logprobs([texts[i] for i in delta.ids], delta.log_probs, offset)


async def _whole(work: _Work) -> None:
    gathered = [Delta(choice, "") for choice in work.choices]
    async with aclosing(work.deltas) as deltas:
        async for delta in deltas:
            index = delta.choice.index
            work.take(delta)
            gathered[index].ids += delta.ids
            gathered[index].log_probs += delta.log_probs
    form = work.form
    choices = [
        form.choice(
            choice.index,
            work.texts[choice.index],
            choice.finish or "stop",
            work.logprobs(gathered[choice.index], 0),
        )
        for choice in work.choices
    ]
    whole = Answer(work.id, form.object, work.created, work.request.model, choices, work.usage)
    work.exchange.record.t4 = time.monotonic()
    await work.exchange.respond(msgspec.json.encode(whole))


async def _stream(work: _Work) -> None:
    exchange, request, form = work.exchange, work.request, work.form
    counts = request.stream_options.include_usage
    events = Events(work.id, form.chunk, work.created, request.model, usage=counts)
    begun: set[int] = set()
    running = len(work.choices)
    exchange.record.stream = True
    async with aclosing(work.deltas) as deltas:
        async for delta in deltas:
            work.take(delta)
            index = delta.choice.index
            data = b""
            if index not in begun:
                begun.add(index)
                if form.chunk == CHAT_CHUNK:
                    data = events.role(index)
                elif work.prefixes[index]:
                    data = events.text(index, work.prefixes[index])
            if work.logs and delta.ids:
                data += events.choice(index, delta.text, logprobs=work.logprobs(delta, 0))
            elif delta.text:
                data += events.text(index, delta.text)
            if exchange.record.t5 is None:
                exchange.record.t4 = time.monotonic()
                await exchange.start_events()
            if delta.finish:
                running -= 1
                last = not running and not counts
                data += events.choice(
                    index, "", finish=delta.finish, tts=_own_latency(exchange) if last else None
                )
            if running:
                if data:
                    await exchange.event(data)
                continue
            if counts:
                data += events.usage(work.usage, tts=_own_latency(exchange))
            await exchange.end_events(data + DONE)


def _own_latency(exchange: Exchange) -> dict[str, Any]:
    own = exchange.record.own_latency_s()
    return {"gateway_ms": None if own is None else round(1000 * own, 3)}
