"""The events of a streamed answer (server-sent events), from templates of bytes. Pure.

An event is a line `data: ` with a chunk as JSON, and an empty line. OpenAI's clients parse every
one of them as a chunk; what is no chunk goes into a field of its own of one (`tts`), or into a
comment, which clients skip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from .messages import ToolCall

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

json = msgspec.json.encode


def event(body: bytes) -> bytes:
    """One event with a body of one line, as JSON is here."""
    return b"data: " + body + b"\n\n"


class Events:
    """The chunks of one answer. Their common part is encoded once."""

    def __init__(self, answer: str, kind: str, created: int, model: str, *, usage: bool) -> None:
        """`usage`: the stream ends with a chunk that counts tokens, which all others prepare."""
        head = {"id": answer, "object": kind, "created": created, "model": model}
        self._head = json(head)[:-1]
        self._chat = kind == CHAT_CHUNK
        self._choice = b"data: " + self._head + b',"choices":[{"index":'
        self._content = b',"delta":{"content":' if self._chat else b',"text":'
        self._end = b"]" + (b',"usage":null' if usage else b"")
        after = b"}" if self._chat else b""
        self._rest = after + b',"logprobs":null,"finish_reason":null}' + self._end + b"}\n\n"
        self._texts: dict[int, bytes] = {}

    def role(self, index: int) -> bytes:
        """The first chunk of a chat's choice, which names the role."""
        return self._with_delta(index, {"role": "assistant", "content": ""})

    def text(self, index: int, text: str) -> bytes:
        """A chunk with text: all that is left to do is to encode it."""
        start = self._texts.get(index)
        if start is None:
            start = self._texts[index] = self._choice + b"%d" % index + self._content
        return start + json(text) + self._rest

    def choice(
        self,
        index: int,
        text: str,
        *,
        finish: str | None = None,
        logprobs: Any = None,
        tts: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Any other chunk of a choice: its end, or text with log-probabilities."""
        delta = {"content": text} if text else {}
        content: dict[str, Any] = {"delta": delta} if self._chat else {"text": text}
        rest = {**content, "logprobs": logprobs, "finish_reason": finish}
        return self._chunk(json([{"index": index, **rest}])[1:-1], tts)

    def calls(self, index: int, first: int, calls: Sequence[ToolCall]) -> bytes:
        """A chunk with whole calls of tools; the choice has had `first` calls before."""
        told = [
            {"index": place, "id": call.id, "type": call.type, "function": call.function}
            for place, call in enumerate(calls, start=first)
        ]
        return self._with_delta(index, {"tool_calls": told})

    def reasoning(self, text: str) -> bytes:
        """A chunk with text that is no part of the answer, by both names that clients know."""
        return self._with_delta(0, {"reasoning": text, "reasoning_content": text})

    def progress(self, tts: Mapping[str, Any]) -> bytes:
        """A chunk that adds nothing to the answer, and says how far the search is."""
        return self._with_delta(0, {}, tts) if self._chat else self.choice(0, "", tts=tts)

    def usage(self, usage: Any, tts: Mapping[str, Any] | None = None) -> bytes:
        """The chunk without choices that counts tokens."""
        extra = b',"tts":' + json(tts) if tts else b""
        counted = b',"usage":' + json(usage)
        return b"data: " + self._head + b',"choices":[]' + counted + extra + b"}\n\n"

    def _with_delta(
        self, index: int, delta: dict[str, Any], tts: Mapping[str, Any] | None = None
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._chunk(json(choice), tts)

    def _chunk(self, choice: bytes, tts: Mapping[str, Any] | None) -> bytes:
        extra = b',"tts":' + json(tts) if tts else b""
        choices = b',"choices":[' + choice
        return b"data: " + self._head + choices + self._end + extra + b"}\n\n"


CHAT_CHUNK = "chat.completion.chunk"
TEXT_CHUNK = "text_completion"
