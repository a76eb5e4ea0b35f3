"""The messages of a chat, and the tools that it offers and calls. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct


class TextPart(Struct, tag_field="type", tag="text"):
    """A part of a message's content; there is no other kind."""

    text: str


class CalledFunction(Struct):
    """Which function is called, and with which arguments: a JSON object as text."""

    name: str
    arguments: str


class ToolCall(Struct):
    """A call of a tool, as an assistant's message has it."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class ChatMessage(Struct):
    """One message; other fields of it are ignored."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    """The call that a tool's message answers."""

    @property
    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""

    @property
    def of_tools(self) -> bool:
        """Whether it calls tools, or answers a call."""
        return self.role == "tool" or bool(self.tool_calls)

    def plain(self) -> dict[str, str]:
        """The message as chat templates take it."""
        return {
            "role": "system" if self.role == "developer" else self.role,
            "content": self.text,
        }


Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class Function(Struct, omit_defaults=True):
    """A function that the model may call; `parameters` is the schema of its arguments."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    """Whether the arguments must obey all of the schema."""


class Tool(Struct):
    """A tool; functions are the only kind."""

    function: Function
    type: Literal["function"] = "function"

    def plain(self) -> dict[str, Any]:
        """The tool as chat templates take it."""
        function = msgspec.to_builtins(self.function)
        function.pop("strict", None)
        return {"type": "function", "function": function}


class FunctionName(Struct):
    """A function by its name."""

    name: str


class NamedTool(Struct):
    """The `tool_choice` that names the tool to call."""

    function: FunctionName
    type: Literal["function"] = "function"
