"""A turn of a chat with tools: what the model is asked, and its calls as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from tts.base.errors import ConfigError
from tts.build.tokenizer import Tokenizer
from tts.engines.wire import Guide

from ..openai.errors import bad_request
from ..openai.messages import NamedTool, Tool
from ..openai.requests import ChatRequest
from ..output.generation import Delta
from ..service import Service
from ..tools.forced import MAX_CALLS, forced_call
from ..tools.forms import ToolForm, form_of
from ..tools.parser import CallParser
from .structured import OutputForm, require_guides, schema_guide


@dataclass(frozen=True)
class ToolTurn:
    """How the tools of one request are called."""

    form: ToolForm
    tools: list[Tool]
    """Those that may be called."""
    most: int
    """Calls of one answer at most."""
    prefix: str = ""
    """End of the prompt, or of the thinking: the beginning of a call that must come."""
    guide: Guide | None = None
    marks: Mapping[int, str] = field(default_factory=dict)
    """Special tokens that stand in calls."""

    def parser(self) -> CallParser:
        """What reads one sample."""
        names = [tool.function.name for tool in self.tools]
        parser = CallParser(self.form, names, most=self.most)
        parser.feed(self.prefix)
        return parser


def tool_turn(service: Service, request: ChatRequest, form: OutputForm | None) -> ToolTurn | None:
    """How a request has its tools called; None: none can be. Raises ApiError.

    `form` is that of an answer that calls none.
    """
    choice = request.tool_choice or ("auto" if request.tools else "none")
    names = [tool.function.name for tool in request.tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise bad_request(f"Two tools have the name {twice}.", "tools")
    if not names and (choice == "required" or isinstance(choice, NamedTool)):
        raise bad_request("tool_choice asks for a call, and there are no tools.", "tool_choice")
    if choice == "none" or not names:
        return None
    tokenizer = service.generator.models.generator
    call_form = form_of(tokenizer.chat_template)
    several = request.parallel_tool_calls and call_form.parallel
    marks = _marks(tokenizer, call_form)
    tools = request.tools
    if isinstance(choice, NamedTool):
        several = False
        tools = [tool for tool in tools if tool.function.name == choice.function.name]
        if not tools:
            raise bad_request(
                f"tool_choice names {choice.function.name!r:.80}, which is none of the tools.",
                "tool_choice",
            )
    if choice == "auto":
        if form is not None:
            raise bad_request(
                f"{form.param} cannot be combined with tools that may be called: set tool_choice "
                "to none or required.",
                form.param,
                "unsupported_parameter",
            )
        return ToolTurn(call_form, tools, MAX_CALLS if several else 1, marks=marks)
    if request.ignore_eos:
        raise bad_request("ignore_eos and a call that must come exclude each other.", "ignore_eos")
    require_guides(service.deployment, "tool_choice")
    prefix, schema = forced_call(call_form, tools, several=several)
    most = MAX_CALLS if several else 1
    try:
        guide = schema_guide(schema)
    except ConfigError as error:
        raise bad_request(f"The parameters of the tools: {error}", "tools") from None
    return ToolTurn(call_form, tools, most, prefix, guide, marks)


def _marks(tokenizer: Tokenizer, form: ToolForm) -> dict[int, str]:
    wanted = {form.opener, form.closer, form.args_mark, "[CALL_ID]"} - {""}
    return {token: text for token, text in tokenizer.special_texts.items() if text in wanted}


async def reading_calls(
    deltas: AsyncGenerator[Delta, None], turn: ToolTurn, samples: int
) -> AsyncGenerator[Delta, None]:
    """The deltas of some samples with calls instead of their text."""
    parsers = [turn.parser() for _ in range(samples)]
    async with aclosing(deltas):
        async for delta in deltas:
            if delta.sample.thinks:
                yield delta
                continue
            parser = parsers[delta.sample.index]
            text, calls = parser.feed(delta.text)
            finish = delta.finish
            if finish:
                more, last = parser.end()
                text, calls = text + more, calls + last
                if parser.calls and finish == "stop":
                    finish = "tool_calls"
            yield replace(delta, text=text, finish=finish, calls=calls)
