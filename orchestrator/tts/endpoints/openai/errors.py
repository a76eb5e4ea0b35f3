"""What the errors of a server mean: the one place where they become ours. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tts.base.errors import EndpointError, EndpointTimeout, EndpointUnavailable, RequestRefused

from ..retry import AskedToWait

MOST_WORDS = 300
"""Characters of a server's words that an error repeats."""

_LATE = (408, 504)
_PASSING = (425, 429, 502, 503, 529)
_ENGINE_DIED = ("EngineDead", "EngineCore encountered")
"""vLLM's words, with status 500, for an engine that its server is about to follow."""
_LONGEST_WAIT_S = 86_400.0


def words_of(body: bytes) -> str:
    """What an answer with an error says, in one line and not too long."""
    try:
        words = _message(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        words = body[: 4 * MOST_WORDS].decode(errors="replace")
    words = " ".join(words.split()) or "it says nothing more"
    return words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}..."


def error_of_answer(
    address: str, path: str, status: int, body: bytes, headers: Mapping[str, str]
) -> EndpointError:
    """What an answer other than 200 means for the one request that it answers."""
    words = words_of(body)
    message = f"The server at {address} answered {path} with status {status}: {words}"
    if status in _LATE:
        return EndpointTimeout(message)
    if status in _PASSING or (status == 500 and any(sign in words for sign in _ENGINE_DIED)):
        seconds = _seconds(headers.get("Retry-After"))
        return AskedToWait(message, seconds) if seconds else EndpointUnavailable(message)
    return RequestRefused(message, _HINTS.get(status))


_HINTS = {
    401: "It asks for a key: name the environment variable that holds it with api_key_env.",
    403: "The key that api_key_env names may not do this.",
    404: "The url is what stands before /v1/completions; model is a name that /v1/models lists.",
}


def error_of_event(address: str, path: str, event: Any) -> EndpointError | None:
    """The meaning of an error event in the middle of a stream."""
    error = event.get("error") if isinstance(event, dict) else None
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    status = code if type(code) is int and 400 <= code < 600 else 500
    return error_of_answer(address, path, status, msgspec.json.encode(event), {})


def _message(answer: Any) -> str:
    """The words in what servers answer: {"error": {"message"}}, {"message"}, {"detail"}."""
    for name in ("error", "message", "detail"):
        if isinstance(answer, dict) and answer.get(name):
            answer = answer[name]
    return answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()


def _seconds(header: str | None) -> float:
    """A Retry-After in seconds; 0 for a date, which no server of this kind sends, and nonsense."""
    try:
        seconds = float(header or 0)
    except ValueError:
        return 0.0
    return min(seconds, _LONGEST_WAIT_S) if seconds > 0 else 0.0
