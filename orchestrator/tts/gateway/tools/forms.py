"""The forms in which models write calls of tools, by what their chat templates hold. Pure.

    Hermes, Qwen   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, once for each call
    Llama 3        {"name": ..., "parameters": {...}}, alone or after <|python_tag|>; one call
    Mistral        [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
    Mistral, new   [TOOL_CALLS]name[ARGS]{...}, once for each call

A template that knows none gets Hermes' form, explained in the system message.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..openai.messages import CalledFunction, ToolCall

_CHARS = string.ascii_letters + string.digits
ID_CHARS = 9
"""Letters and digits of a call's id: Mistral's templates take no other number."""


@dataclass(frozen=True)
class ToolForm:
    """How calls stand in a text."""

    kind: str
    """`hermes`, `llama` or `mistral`."""
    opener: str
    """Text with which a call begins."""
    closer: str = ""
    arguments: str = "arguments"
    """The name under which a call has its arguments."""
    bare: bool = False
    """Whether an output that begins with a brace is a call, too."""
    parallel: bool = True
    """Whether a message may hold several calls."""
    in_template: bool = True
    """Whether the chat template tells the model of its tools; else we do."""
    args_mark: str = ""
    """Text between a name and its arguments, where a call is no JSON object."""

    def write(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
        """Calls as a model writes them."""
        if self.args_mark:
            return "".join(
                f"{self.opener}{name}{self.args_mark}{_json(arguments)}"
                for name, arguments in calls
            )
        bodies = [
            f'{{"name": {_json(name)}, "{self.arguments}": {_json(arguments)}}}'
            for name, arguments in calls
        ]
        if self.kind == "mistral":
            return f"{self.opener}[{', '.join(bodies)}]"
        if self.kind == "llama":
            return "; ".join(bodies)
        return "\n".join(f"{self.opener}\n{body}\n{self.closer}" for body in bodies)


HERMES = ToolForm("hermes", "<tool_call>", "</tool_call>")
LLAMA = ToolForm("llama", "<|python_tag|>", arguments="parameters", bare=True, parallel=False)
MISTRAL = ToolForm("mistral", "[TOOL_CALLS]")
MISTRAL_ARGS = replace(MISTRAL, args_mark="[ARGS]")
OWN = replace(HERMES, in_template=False)
FORMS = (HERMES, LLAMA, MISTRAL, MISTRAL_ARGS, OWN)
_TELLS = re.compile(r"\btools\b")


def form_of(template: str) -> ToolForm:
    """The form of a chat template."""
    if _TELLS.search(template):
        if MISTRAL.opener in template:
            return MISTRAL_ARGS if "[ARGS]" in template else MISTRAL
        if HERMES.opener in template:
            return HERMES
        if LLAMA.opener in template or '"parameters": ' in template:
            return LLAMA
    return OWN


def new_call(name: str, arguments: str) -> ToolCall:
    """A call with an id of its own."""
    own = "".join(secrets.choice(_CHARS) for _ in range(ID_CHARS))
    return ToolCall(own, CalledFunction(name, arguments))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
