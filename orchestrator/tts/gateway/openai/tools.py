"""The tools that a request offers. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

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
