"""Parts of an answer, before they are written in the form of an API. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import UNSET, Struct, UnsetType, field

from .messages import ToolCall


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
    """Index of the choice that gains it."""
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
