"""Answers of chats in the form of the Responses API: whole, or as its events. Pure.

A chat's answer is read as JSON and written anew, so that there is one way to answer chats.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from .responses import ResponsesRequest

json = msgspec.json.encode
_DATA = b"data: "


class ResponseForm:
    """What turns the answer to one request's chat into a response."""

    def __init__(self, request: ResponsesRequest, name: str) -> None:
        """`name` is the response's id."""
        self._request = request
        self._name = name
        self._created = int(time.time())
        self._events = 0
        self._output: list[dict[str, Any]] = []
        """Items so far; the last may be open."""
        self._open = False
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None
        self._tts: Any = None

    def whole(self, body: bytes) -> bytes:
        """The response to a chat's whole answer."""
        answer = msgspec.json.decode(body)
        choice = answer["choices"][0]
        message = choice["message"]
        calls = message.get("tool_calls", ())
        self._finish, self._usage = choice["finish_reason"], answer["usage"]
        self._tts = answer.get("tts")
        if reasoning := message.get("reasoning"):
            self._output.append(self._item("reasoning", text=reasoning))
        if message["content"] or not calls:
            logs = (choice["logprobs"] or {}).get("content", [])
            self._output.append(self._item("message", message["content"] or "", logs))
        for call in calls:
            self._output.append(self._called(call))
        return json(self._response())

    def events(self, data: bytes) -> bytes:
        """The events that some events of a chat's stream stand for; comments stay."""
        said = b""
        if not self._events:
            for kind in ("response.created", "response.in_progress"):
                said += self._event(kind, response=self._response("in_progress"))
        for part in data.split(b"\n\n"):
            if not part.startswith(_DATA):
                said += part + b"\n\n" if part else b""
            elif part == b"data: [DONE]":
                said += self._end()
            else:
                said += self._chunk(msgspec.json.decode(part[len(_DATA) :]))
        return said

    def _chunk(self, chunk: dict[str, Any]) -> bytes:
        if error := chunk.get("error"):
            return self._failed(error)
        self._tts = _told(chunk.get("tts")) or self._tts
        self._usage = chunk.get("usage") or self._usage
        said = b""
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if reasoning := delta.get("reasoning"):
                said += self._more("reasoning", reasoning)
            logs = (choice["logprobs"] or {}).get("content", [])
            if delta.get("content") or logs:
                said += self._more("message", delta.get("content") or "", logs)
            for call in delta.get("tool_calls", ()):
                said += self._close() + self._tell_call(call)
            self._finish = choice["finish_reason"] or self._finish
        return said

    def _more(self, kind: str, text: str, logs: Any = ()) -> bytes:
        """Further text of an item, which begins with it unless it is open."""
        said = b""
        if not self._open or self._output[-1]["type"] != kind:
            said = self._close() + self._begin(kind)
        item = self._output[-1]
        part = item["content"][0]
        part["text"] += text
        if kind == "reasoning":
            return said + self._event("response.reasoning_text.delta", **self._place(), delta=text)
        found = list(map(_log_prob, logs))
        part["logprobs"] += found
        place = self._place()
        return said + self._event("response.output_text.delta", **place, delta=text, logprobs=found)

    def _begin(self, kind: str) -> bytes:
        item = self._item(kind, "", status="in_progress")
        self._output.append(item)
        self._open = True
        place = len(self._output) - 1
        bare = {**item, "content": []}
        said = self._event("response.output_item.added", output_index=place, item=bare)
        part = item["content"][0]
        return said + self._event("response.content_part.added", **self._place(), part=part)

    def _close(self, status: str = "completed") -> bytes:
        if not self._open:
            return b""
        self._open = False
        item = self._output[-1]
        item["status"] = status
        part, place = item["content"][0], self._place()
        if item["type"] == "reasoning":
            said = self._event("response.reasoning_text.done", **place, text=part["text"])
        else:
            logs = part["logprobs"]
            said = self._event(
                "response.output_text.done", **place, text=part["text"], logprobs=logs
            )
        said += self._event("response.content_part.done", **place, part=part)
        return said + self._event(
            "response.output_item.done", output_index=place["output_index"], item=item
        )

    def _tell_call(self, call: dict[str, Any]) -> bytes:
        item = self._called(call)
        self._output.append(item)
        index = len(self._output) - 1
        place = {"item_id": item["id"], "output_index": index}
        arguments = item["arguments"]
        begun = {**item, "arguments": "", "status": "in_progress"}
        kind = "response.function_call_arguments"
        return (
            self._event("response.output_item.added", output_index=index, item=begun)
            + self._event(f"{kind}.delta", **place, delta=arguments)
            + self._event(f"{kind}.done", **place, arguments=arguments, name=item["name"])
            + self._event("response.output_item.done", output_index=index, item=item)
        )

    def _end(self) -> bytes:
        said = b"" if self._output else self._begin("message")
        status = self._status
        said += self._close(status)
        return said + self._event(f"response.{status}", response=self._response())

    def _failed(self, error: dict[str, Any]) -> bytes:
        told = {name: error.get(name) for name in ("code", "message", "param")}
        # clients that look for a field `error` in any event raise what it says
        said = self._event("error", **told, error=error)
        kind = "rate_limit_exceeded" if error.get("type") == "rate_limit_error" else "server_error"
        response = self._response("failed")
        response["error"] = {"code": kind, "message": error.get("message")}
        return said + self._event("response.failed", response=response)

    @property
    def _status(self) -> str:
        return "incomplete" if self._finish == "length" else "completed"

    def _response(self, status: str | None = None) -> dict[str, Any]:
        asked = self._request
        status = status or self._status
        response = {
            "id": self._name,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "model": asked.model,
            "output": [] if status == "in_progress" else self._output,
            "parallel_tool_calls": asked.parallel_tool_calls,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": asked.temperature,
            "text": {"format": (asked.text and asked.text.format) or {"type": "text"}},
            "tool_choice": asked.tool_choice or "auto",
            "tools": asked.tools,
            "top_p": asked.top_p,
            "truncation": "disabled",
            "usage": None,
            "metadata": asked.metadata or {},
        }
        if status == "incomplete":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        if self._usage:
            response["usage"] = _usage(self._usage)
        if self._tts:
            response["tts"] = self._tts
        return response

    def _item(
        self, kind: str, text: str, logs: Any = (), status: str | None = None
    ) -> dict[str, Any]:
        """A message, or the reasoning before it."""
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
            "logprobs": list(map(_log_prob, logs)),
        }
        return {
            "id": f"msg_{self._name}_{place}",
            "type": kind,
            "role": "assistant",
            "content": [part],
            "status": status,
        }

    def _called(self, call: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"fc_{call['id']}",
            "type": "function_call",
            "call_id": call["id"],
            **call["function"],
            "status": "completed",
        }

    def _place(self) -> dict[str, Any]:
        """Where the text of the last item is."""
        index = len(self._output) - 1
        return {"item_id": self._output[-1]["id"], "output_index": index, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self._events, **fields}
        self._events += 1
        return b"event: " + kind.encode() + b"\n" + _DATA + json(body) + b"\n\n"


def _told(tts: Any) -> Any:
    """A chunk's facts about the answer; a search's steps have no place in a response."""
    return None if tts is None or "steps" in tts else tts


def _log_prob(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("token", "bytes", "logprob", "top_logprobs")}


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    details = usage.get("completion_tokens_details") or {"reasoning_tokens": 0}
    counted = {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": details,
        "total_tokens": usage["total_tokens"],
    }
    return counted | ({"tts": usage["tts"]} if "tts" in usage else {})
