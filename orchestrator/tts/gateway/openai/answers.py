"""Answers as structures; encoding one is a call of msgspec. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType


class TokenDetails(Struct):
    """What the completion's tokens were spent on."""

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

    content: str
    role: str = "assistant"
    refusal: None = None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


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
