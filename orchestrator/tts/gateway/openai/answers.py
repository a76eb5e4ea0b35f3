"""Answers as structures, in both forms that clients know; msgspec encodes them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from .events import CHAT_CHUNK, TEXT_CHUNK
from .messages import ToolCall


class TokenDetails(Struct):
    """The completion's tokens by purpose."""

    reasoning_tokens: int = 0
    """All that a search has generated and that is not in the answer."""


class SearchUsage(Struct):
    """What a search took beyond what OpenAI's usage counts."""

    verifier_tokens: int
    generator_calls: int
    verifier_calls: int
    seconds: float


class Usage(Struct):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: TokenDetails | UnsetType = UNSET
    tts: SearchUsage | UnsetType = UNSET


def usage_of(prompt: int, completion: int) -> Usage:
    """The usage of plain generation."""
    return Usage(prompt, completion, prompt + completion)


class TextChoice(Struct):
    """A choice of `/v1/completions`."""

    index: int
    text: str
    finish_reason: str
    logprobs: Any = None


class Message(Struct):
    """What the assistant says."""

    content: str | None
    role: str = "assistant"
    refusal: None = None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: Sequence[ToolCall] | UnsetType = UNSET


class ChatChoice(Struct):
    """A choice of `/v1/chat/completions`."""

    index: int
    message: Message
    finish_reason: str
    logprobs: Any = None


class Answer(Struct):
    """A whole answer."""

    id: str
    object: str
    created: int
    model: str
    choices: list[TextChoice] | list[ChatChoice]
    usage: Usage
    tts: dict[str, Any] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET


Likeliest = Sequence[tuple[str, float]]
"""The likeliest tokens of a place with their log-probabilities, the likeliest first."""


class ChoiceOf(Protocol):
    """What makes a whole choice."""

    def __call__(
        self, index: int, text: str, finish: str, logs: Any, calls: Sequence[ToolCall] = ()
    ) -> Any:
        """The choice at a place."""


@dataclass(frozen=True)
class AnswerForm:
    """In what the answers of completions and of chat differ."""

    object: str
    chunk: str
    choice: ChoiceOf
    """A whole choice: its place, its text, why it ends, its log-probabilities, calls of tools."""
    logprobs: Callable[[Sequence[str], Sequence[float], Sequence[Likeliest], int], Any]
    """The log-probabilities of some tokens, with the likeliest of each place if anybody asked; the
    first begins at this character."""

    @property
    def chats(self) -> bool:
        """Whether the answer is a message of a chat, which begins by naming its role."""
        return self.chunk == CHAT_CHUNK


def _text_choice(
    index: int, text: str, finish: str, logs: Any, calls: Sequence[ToolCall] = ()
) -> TextChoice:
    return TextChoice(index, text, finish, logs)


def _chat_choice(
    index: int, text: str, finish: str, logs: Any, calls: Sequence[ToolCall] = ()
) -> ChatChoice:
    message = Message(text)
    if calls:
        message.content, message.tool_calls = text or None, calls
    return ChatChoice(index, message, finish, logs)


def _text_log_probs(
    tokens: Sequence[str],
    log_probs: Sequence[float],
    top: Sequence[Likeliest],
    begin: int,
) -> Any:
    offsets = [begin]
    for token in tokens:
        offsets.append(offsets[-1] + len(token))
    given = list(map(_shortest, log_probs))
    return {
        "tokens": list(tokens),
        "token_logprobs": given,
        "top_logprobs": list(map(_by_text, tokens, given, top)) if top else None,
        "text_offset": offsets[:-1],
    }


def _by_text(token: str, log_prob: float, likeliest: Likeliest) -> dict[str, float]:
    """The likeliest by their texts, and the token itself; of equal texts the likelier counts."""
    found = {token: log_prob}
    for text, each in likeliest:
        found[text] = max(found.get(text, -np.inf), _shortest(each))
    return found


def _chat_log_probs(
    tokens: Sequence[str],
    log_probs: Sequence[float],
    top: Sequence[Likeliest],
    begin: int,
) -> Any:
    rows = top or [()] * len(tokens)
    return {
        "content": [
            {**_entry(token, log_prob), "top_logprobs": [_entry(*each) for each in row]}
            for token, log_prob, row in zip(tokens, log_probs, rows, strict=True)
        ],
        "refusal": None,
    }


def _entry(token: str, log_prob: float) -> dict[str, Any]:
    return {"token": token, "logprob": _shortest(log_prob), "bytes": list(token.encode())}


def _shortest(number: float) -> float:
    """A number that an engine has as float32, in as few digits as tell it from all others."""
    return float(str(np.float32(number)))


TEXT = AnswerForm("text_completion", TEXT_CHUNK, _text_choice, _text_log_probs)
"""`/v1/completions`."""
CHAT = AnswerForm("chat.completion", CHAT_CHUNK, _chat_choice, _chat_log_probs)
"""`/v1/chat/completions`."""
