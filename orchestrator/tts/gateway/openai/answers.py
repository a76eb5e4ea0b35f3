"""Parts of an answer, and how completions and chats write them: whole, or as events. Pure.

An event is a line `data: ` with a chunk as JSON, and an empty line. OpenAI's clients parse every
one of them as a chunk; what is no chunk goes into a field of its own of one (`tts`), or into a
comment, which clients skip.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType, field

from .messages import ToolCall
from .requests import Request


class TokenDetails(Struct):
    """The completion's tokens by purpose."""

    reasoning_tokens: int = 0
    """The thinking before an answer; of a search all that it has generated and is in no answer."""


class SearchUsage(Struct):
    """Use of a search, beyond that which OpenAI's usage counts."""

    verifier_tokens: int
    generator_calls: int
    verifier_calls: int
    seconds: float


class TokenUsage(Struct):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: TokenDetails | UnsetType = UNSET
    tts: SearchUsage | UnsetType = UNSET


def usage_of(
    prompt: int,
    answer: int,
    others: int | None = None,
    search: SearchUsage | UnsetType = UNSET,
) -> TokenUsage:
    """The usage of a request; `others`: tokens that it took and that are in no answer."""
    details = UNSET if others is None else TokenDetails(others)
    generated = answer + (others or 0)
    return TokenUsage(prompt, generated, prompt + generated, details, search)


class TokenLogs(Struct):
    """Log-probabilities of some tokens of a text."""

    tokens: list[str] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    """NaN, which JSON has as null, of a prompt's first token."""
    top: list[list[tuple[str, float]]] = field(default_factory=list)
    """The likeliest tokens at each place, the likeliest first; empty if nobody asked."""
    begin: int = 0
    """The character at which the first token begins."""


class AnswerEnd(Struct):
    """Facts that are known when all of an answer is there."""

    usage: TokenUsage
    latency: dict[str, Any] | None = None
    """Fields of a stream's last chunk about the gateway's own time."""
    metadata: dict[str, Any] | None = None


class AnswerPart(Struct):
    """Gain of an answer; nothing, where it only goes on."""

    index: int = 0
    text: str | None = None
    reasoning: str = ""
    """Text that is no part of the answer."""
    logs: TokenLogs | None = None
    """None unless somebody asked."""
    calls: Sequence[ToolCall] = ()
    finish: str | None = None
    """Why the choice ends here; None: it goes on."""
    tts: dict[str, Any] | None = None
    """Facts about a search: how far it is, or with the end of the choice what came of it."""
    end: AnswerEnd | None = None
    """With the last part of all choices."""

    def extend(self, more: AnswerPart) -> None:
        """Add what the same choice gains after it."""
        self.text = (self.text or "") + (more.text or "")
        self.reasoning += more.reasoning
        if self.logs and more.logs:
            self.logs.tokens += more.logs.tokens
            self.logs.log_probs += more.logs.log_probs
            self.logs.top += more.logs.top
        self.logs = self.logs or more.logs
        self.calls = [*self.calls, *more.calls]
        self.finish = more.finish
        self.tts = more.tts


class Encoder(Protocol):
    """Writes one answer in the form of an API."""

    def whole(self, choices: Sequence[AnswerPart], end: AnswerEnd) -> bytes:
        """The body of the response."""

    def events(self, part: AnswerPart) -> bytes:
        """The events of a stream that tell a part, the end of the stream among them."""


DONE = b"data: [DONE]\n\n"
json = msgspec.json.encode


class TextEncoder:
    """The answer to one request of `/v1/completions`. The common part of chunks is encoded once."""

    whole_object = "text_completion"
    chunk_object = "text_completion"
    _before_text, _after_text = b',"text":', b""

    def __init__(self, name: str, request: Request) -> None:
        """`name` is the answer's id."""
        self._name = name
        self._model = request.model
        self._created = int(time.time())
        self._counts = request.stream_options.include_usage
        """Whether a stream ends with a chunk that counts tokens, which all others prepare."""
        self._head = b"data: " + json(self._facts(self.chunk_object))[:-1]
        self._end = b"]" + (b',"usage":null' if self._counts else b"")
        self._rest = self._after_text + b',"logprobs":null,"finish_reason":null}'
        self._rest += self._end + b"}\n\n"
        self._texts: dict[int, bytes] = {}

    def whole(self, choices: Sequence[AnswerPart], end: AnswerEnd) -> bytes:
        """The body of the response."""
        answer = {
            **self._facts(self.whole_object),
            "choices": list(map(self._whole_choice, choices)),
            "usage": end.usage,
        }
        more = {"tts": choices[0].tts, "metadata": end.metadata}
        return json(answer | {name: value for name, value in more.items() if value})

    def events(self, part: AnswerPart) -> bytes:
        """The events of a stream that tell a part, the end of the stream among them."""
        data, end = self._beginning(part), part.end
        if part.logs and part.logs.tokens:
            data += self._chunk(part.index, self._delta(part.text or ""), logs=part.logs)
        elif part.text is not None:
            data += self._text(part.index, part.text)
        if part.calls:
            data += self._called(part.index, part.calls)
        latency = end.latency if end else None
        if part.finish or part.tts:
            tts = part.tts or (None if self._counts else latency)
            data += self._chunk(part.index, self._delta(""), finish=part.finish, tts=tts)
        if end and self._counts:
            extra = b',"tts":' + json(latency) if latency else b""
            usage = b',"usage":' + json(end.usage)
            data += self._head + b',"choices":[]' + usage + extra + b"}\n\n"
        return data + DONE if end else data

    def _facts(self, kind: str) -> dict[str, Any]:
        return {"id": self._name, "object": kind, "created": self._created, "model": self._model}

    def _text(self, index: int, text: str) -> bytes:
        start = self._texts.get(index)
        if start is None:
            start = self._head + b',"choices":[{"index":%d' % index + self._before_text
            self._texts[index] = start
        return start + json(text) + self._rest

    def _chunk(
        self,
        index: int,
        content: dict[str, Any],
        *,
        finish: str | None = None,
        logs: TokenLogs | None = None,
        tts: dict[str, Any] | None = None,
    ) -> bytes:
        log_probs = self._logprobs(logs) if logs else None
        choice = {"index": index, **content, "logprobs": log_probs, "finish_reason": finish}
        extra = b',"tts":' + json(tts) if tts else b""
        return self._head + b',"choices":[' + json(choice) + self._end + extra + b"}\n\n"

    def _beginning(self, part: AnswerPart) -> bytes:
        return b""

    def _called(self, index: int, calls: Sequence[ToolCall]) -> bytes:
        return b""

    def _delta(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _whole_choice(self, part: AnswerPart) -> dict[str, Any]:
        logs = self._logprobs(part.logs) if part.logs else None
        return {
            "index": part.index,
            **self._whole_content(part),
            "finish_reason": part.finish,
            "logprobs": logs,
        }

    def _whole_content(self, part: AnswerPart) -> dict[str, Any]:
        return {"text": part.text or ""}

    def _logprobs(self, logs: TokenLogs) -> dict[str, Any]:
        offsets = [logs.begin]
        for token in logs.tokens:
            offsets.append(offsets[-1] + len(token))
        log_probs = [_shortest(each) for each in logs.log_probs]
        top = list(map(_by_text, logs.tokens, log_probs, logs.top))
        return {
            "tokens": logs.tokens,
            "token_logprobs": log_probs,
            "top_logprobs": top or None,
            "text_offset": offsets[:-1],
        }


class ChatEncoder(TextEncoder):
    """The answer to one request of `/v1/chat/completions`."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    _before_text, _after_text = b',"delta":{"content":', b"}"

    def __init__(self, name: str, request: Request) -> None:
        super().__init__(name, request)
        self._begun: set[int] = set()
        self._calls: Counter[int] = Counter()
        """Calls of each choice so far."""

    def _beginning(self, part: AnswerPart) -> bytes:
        data = b""
        if part.index not in self._begun:
            self._begun.add(part.index)
            data = self._chunk(part.index, {"delta": {"role": "assistant", "content": ""}})
        if part.reasoning:  # by both names that clients know
            delta = {"reasoning": part.reasoning, "reasoning_content": part.reasoning}
            data += self._chunk(part.index, {"delta": delta})
        return data

    def _called(self, index: int, calls: Sequence[ToolCall]) -> bytes:
        entries = [
            {"index": place, "id": call.id, "type": call.type, "function": call.function}
            for place, call in enumerate(calls, start=self._calls[index])
        ]
        self._calls[index] += len(entries)
        return self._chunk(index, {"delta": {"tool_calls": entries}})

    def _delta(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}

    def _whole_content(self, part: AnswerPart) -> dict[str, Any]:
        content = part.text or (None if part.calls else "")
        message = {"content": content, "role": "assistant", "refusal": None}
        if part.reasoning:
            message |= {"reasoning": part.reasoning, "reasoning_content": part.reasoning}
        return {"message": message | ({"tool_calls": part.calls} if part.calls else {})}

    def _logprobs(self, logs: TokenLogs) -> dict[str, Any]:
        return {"content": token_entries(logs), "refusal": None}


def token_entries(logs: TokenLogs) -> list[dict[str, Any]]:
    """Log-probabilities as chats have them, one entry for a token."""
    rows = logs.top or [[] for _ in logs.tokens]
    return [
        {**_entry(token, log_prob), "top_logprobs": [_entry(*each) for each in row]}
        for token, log_prob, row in zip(logs.tokens, logs.log_probs, rows, strict=True)
    ]


def _entry(token: str, log_prob: float) -> dict[str, Any]:
    return {
        "token": token,
        "logprob": _shortest(log_prob),
        "bytes": list(token.encode()),
    }


def _by_text(
    token: str, log_prob: float, likeliest: Sequence[tuple[str, float]]
) -> dict[str, float] | None:
    """The likeliest by their texts, and the token itself; of equal texts the likelier counts."""
    if math.isnan(log_prob):
        return None
    by_text = {token: log_prob}
    for text, each in likeliest:
        by_text[text] = max(by_text.get(text, -np.inf), _shortest(each))
    return by_text


def _shortest(number: float) -> float:
    """A number that an engine has as float32, in as few digits as tell it from all others."""
    return float(str(np.float32(number)))
