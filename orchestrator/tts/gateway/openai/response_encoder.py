"""Answers of chats in the form of the Responses API: whole, or as its events. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from .answers import AnswerEnd, AnswerPart, TokenDetails, TokenLogs, TokenUsage, json, token_entries
from .errors import ApiError
from .messages import ToolCall
from .responses import ResponsesRequest


class ResponsesEncoder:
    """The answer to one request of `/v1/responses`."""

    def __init__(self, name: str, request: ResponsesRequest) -> None:
        """`name` is the response's id."""
        self._request = request
        self._name = name
        self._created = int(time.time())
        self._events = 0
        self._output: list[dict[str, Any]] = []
        """Items so far; the last may be open."""
        self._open = False
        self._finish: str | None = None
        self._usage: TokenUsage | None = None
        self._tts: dict[str, Any] | None = None

    def whole(self, choices: Sequence[AnswerPart], end: AnswerEnd) -> bytes:
        """The body of the response."""
        (choice,) = choices
        self._finish, self._usage, self._tts = choice.finish, end.usage, choice.tts
        if choice.reasoning:
            self._output.append(self._item("reasoning", choice.reasoning))
        if choice.text or not choice.calls:
            self._output.append(self._item("message", choice.text or "", choice.logs))
        self._output += map(_called, choice.calls)
        return json(self._response())

    def events(self, part: AnswerPart) -> bytes:
        """The events that tell a part and the stream's end; a search's steps have no place."""
        data = b"" if self._events else self._begin_response()
        if part.reasoning:
            data += self._more("reasoning", part.reasoning)
        if part.text or (part.logs and part.logs.tokens):
            data += self._more("message", part.text or "", part.logs)
        for call in part.calls:
            data += self._close() + self._tell_call(_called(call))
        if part.finish:
            self._finish, self._tts = part.finish, part.tts
        if part.end:
            self._usage, self._tts = part.end.usage, self._tts or part.end.latency
            data += self._end()
        return data

    def failed(self, error: ApiError) -> bytes:
        """The events of a stream that breaks off."""
        data = b"" if self._events else self._begin_response()
        fields = error.fields
        facts = {"code": fields.code, "message": fields.message, "param": fields.param}
        # clients that look for a field `error` in any event raise what it says
        data += self._event("error", **facts, error=fields)
        kind = "rate_limit_exceeded" if error.type == "rate_limit_error" else "server_error"
        response = self._response("failed")
        response["error"] = {"code": kind, "message": error.message}
        return data + self._event("response.failed", response=response)

    def _begin_response(self) -> bytes:
        kinds = ("response.created", "response.in_progress")
        return b"".join(self._event(kind, response=self._response("in_progress")) for kind in kinds)

    def _more(self, kind: str, text: str, logs: TokenLogs | None = None) -> bytes:
        data = b""
        if not self._open or self._output[-1]["type"] != kind:
            data = self._close() + self._begin(kind)
        part, new = self._output[-1]["content"][0], _log_probs(logs)
        part["text"] += text
        if kind == "message":
            part["logprobs"] += new
        return data + self._text_event("delta", text, new)

    def _text_event(self, what: str, text: str, logs: list[dict[str, Any]]) -> bytes:
        """The event of a text that the last item gains (delta), or has (done)."""
        fields = {**self._place(), "delta" if what == "delta" else "text": text}
        if self._output[-1]["type"] == "reasoning":
            return self._event(f"response.reasoning_text.{what}", **fields)
        return self._event(f"response.output_text.{what}", **fields, logprobs=logs)

    def _begin(self, kind: str) -> bytes:
        item = self._item(kind, "", status="in_progress")
        self._output.append(item)
        self._open = True
        place = len(self._output) - 1
        bare = {**item, "content": []}
        data = self._event("response.output_item.added", output_index=place, item=bare)
        part = item["content"][0]
        return data + self._event("response.content_part.added", **self._place(), part=part)

    def _close(self, status: str = "completed") -> bytes:
        if not self._open:
            return b""
        self._open = False
        item = self._output[-1]
        item["status"] = status
        part, place = item["content"][0], self._place()
        data = self._text_event("done", part["text"], part.get("logprobs", []))
        data += self._event("response.content_part.done", **place, part=part)
        return data + self._event(
            "response.output_item.done", output_index=place["output_index"], item=item
        )

    def _tell_call(self, item: dict[str, Any]) -> bytes:
        self._output.append(item)
        index = len(self._output) - 1
        place = {"item_id": item["id"], "output_index": index}
        arguments = item["arguments"]
        empty_item = {**item, "arguments": "", "status": "in_progress"}
        kind = "response.function_call_arguments"
        return (
            self._event("response.output_item.added", output_index=index, item=empty_item)
            + self._event(f"{kind}.delta", **place, delta=arguments)
            + self._event(f"{kind}.done", **place, arguments=arguments, name=item["name"])
            + self._event("response.output_item.done", output_index=index, item=item)
        )

    def _end(self) -> bytes:
        data = b"" if self._output else self._begin("message")
        status = self._status
        data += self._close(status)
        return data + self._event(f"response.{status}", response=self._response())

    @property
    def _status(self) -> str:
        return "incomplete" if self._finish == "length" else "completed"

    def _response(self, status: str | None = None) -> dict[str, Any]:
        request = self._request
        status = status or self._status
        response = {
            "id": self._name,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "model": request.model,
            "output": [] if status == "in_progress" else self._output,
            "parallel_tool_calls": request.parallel_tool_calls,
            "previous_response_id": None,
            "reasoning": {
                "effort": request.reasoning and request.reasoning.effort,
                "summary": None,
            },
            "store": False,
            "temperature": request.temperature,
            "text": {"format": (request.text and request.text.format) or {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": request.tools,
            "top_p": request.top_p,
            "truncation": "disabled",
            "usage": None,
            "metadata": request.metadata or {},
        }
        if status == "incomplete":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        if self._usage:
            response["usage"] = _usage(self._usage)
        if self._tts:
            response["tts"] = self._tts
        return response

    def _item(
        self, kind: str, text: str, logs: TokenLogs | None = None, status: str | None = None
    ) -> dict[str, Any]:
        place, status = len(self._output), status or self._status
        if kind == "reasoning":
            return {
                "id": f"rs_{self._name}_{place}",
                "type": kind,
                "summary": [],
                "content": [{"type": "reasoning_text", "text": text}],
                "status": status,
            }
        part = {
            "type": "output_text",
            "text": text,
            "annotations": [],
            "logprobs": _log_probs(logs),
        }
        return {
            "id": f"msg_{self._name}_{place}",
            "type": kind,
            "role": "assistant",
            "content": [part],
            "status": status,
        }

    def _place(self) -> dict[str, Any]:
        index = len(self._output) - 1
        return {"item_id": self._output[-1]["id"], "output_index": index, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self._events, **fields}
        self._events += 1
        return b"event: " + kind.encode() + b"\ndata: " + json(body) + b"\n\n"


def _called(call: ToolCall) -> dict[str, Any]:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.function.name,
        "arguments": call.function.arguments,
        "status": "completed",
    }


def _log_probs(logs: TokenLogs | None) -> list[dict[str, Any]]:
    names = ("token", "bytes", "logprob", "top_logprobs")
    return [{name: entry[name] for name in names} for entry in token_entries(logs)] if logs else []


def _usage(usage: TokenUsage) -> dict[str, Any]:
    details = usage.completion_tokens_details
    counts = {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": TokenDetails() if details is UNSET else details,
        "total_tokens": usage.total_tokens,
    }
    return counts | ({} if usage.tts is UNSET else {"tts": usage.tts})
