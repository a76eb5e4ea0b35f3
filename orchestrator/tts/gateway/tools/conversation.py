"""Chats with tools as messages for a chat template. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..openai.errors import bad_request
from ..openai.messages import ChatMessage, Tool, ToolCall
from .forms import OWN, plain_tools

_INSTRUCTIONS = """You have these tools:
{tools}
To call one, write only
<tool_call>
{{"name": NAME, "arguments": {{...}}}}
</tool_call>
Its result follows in <tool_response>."""


def check_turns(messages: Sequence[ChatMessage]) -> None:
    """Raise ApiError for an answer of a tool that nobody has called."""
    called: set[str] = set()
    for place, message in enumerate(messages):
        for call in message.tool_calls or ():
            called.add(call.id)
        if message.role == "tool" and message.tool_call_id not in called:
            raise bad_request(
                f"The tool's message {place + 1} answers no call: tool_call_id must be the id of a "
                "call in a message of the assistant before it.",
                f"messages[{place}].tool_call_id",
            )


def for_template(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages for a template that knows tools."""
    names = {call.id: call.function.name for each in messages for call in each.tool_calls or ()}
    turns: list[dict[str, Any]] = []
    for message in messages:
        plain: dict[str, Any] = message.plain()
        if message.tool_calls:
            plain["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": given_arguments(call)},
                }
                for call in message.tool_calls
            ]
        if message.role == "tool":
            plain["tool_call_id"] = message.tool_call_id
            plain["name"] = names.get(message.tool_call_id or "", "")
        turns.append(plain)
    return turns


def in_text(messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Messages for a template without tools: texts describe, call and answer them."""
    turns: list[dict[str, Any]] = []
    answering = False
    for message in messages:
        plain = message.plain()
        if message.tool_calls:
            calls = [(call.function.name, given_arguments(call)) for call in message.tool_calls]
            plain["content"] = "\n".join(filter(None, (message.text, OWN.write(calls))))
        if message.role == "tool":
            response = f"<tool_response>\n{message.text}\n</tool_response>"
            plain = {"role": "user", "content": response}
            if answering:  # the answers to several calls are one message
                turns[-1]["content"] += f"\n{response}"
                continue
        answering = message.role == "tool"
        turns.append(plain)
    if not tools:
        return turns
    instructions = _INSTRUCTIONS.format(tools=plain_tools(tools))
    if turns[0]["role"] == "system":
        turns[0]["content"] += f"\n\n{instructions}"
    else:
        turns.insert(0, {"role": "system", "content": instructions})
    return turns


def given_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call in the conversation; raises ApiError unless they are an object."""
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise bad_request(
            f"The arguments of the call {call.id!r:.50} of {call.function.name!r:.80} are no JSON "
            "object.",
            "messages",
        )
    return arguments


def missing_part(messages: Sequence[ChatMessage], tools: Sequence[Tool], text: str) -> str | None:
    """The part of a chat that its text lacks, as it is or as JSON; None: it holds all."""
    for place, message in enumerate(messages, start=1):
        if message.role == "assistant":  # templates drop its reasoning, or what it says to a call
            continue
        content = message.text.strip()
        if content not in text and json.dumps(content, ensure_ascii=False)[1:-1] not in text:
            return f"message {place} of {len(messages)}"
    names = (tool.function.name for tool in tools)
    return next((f"the tool {name}" for name in names if name not in text), None)


def transcript(messages: Sequence[ChatMessage]) -> str:
    """The conversation as a verifier reads it: its question, or all turns in a row."""
    turns = [each for each in messages if each.role not in ("system", "developer")]
    if len(turns) == 1 and turns[0].role == "user":
        return turns[0].text
    lines = []
    for message in turns:
        parts = [message.text] if message.text else []
        parts += [f"{c.function.name}({c.function.arguments})" for c in message.tool_calls or ()]
        lines.append(f"{message.role.capitalize()}: {' '.join(parts)}")
    return "\n\n".join(lines)
