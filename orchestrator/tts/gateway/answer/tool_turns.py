"""A turn of a chat with tools: what the model is asked, and its calls as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from msgspec import structs

from tts.base.errors import ConfigError
from tts.build.control_tokens import plain as unmarked
from tts.build.thinking import Thinking
from tts.build.tokenizer import Tokenizer
from tts.engines.wire import Guide
from tts.prompting import Models
from tts.prompting.chat import inert_texts, shown_chat

from ..call import Call, Service
from ..openai.errors import bad_request
from ..openai.messages import ChatMessage, NamedTool, Tool
from ..openai.requests import ChatRequest
from ..output.generation import Delta
from ..tools.conversation import check_turns, for_template, in_text, missing_part
from ..tools.forms import MAX_CALLS, ToolForm, forced_call, form_of, plain_tools
from ..tools.parser import CallParser
from .prompts import (
    filter_messages,
    filtered,
    form_read,
    refusals_of_template,
    require_length,
    tokenised,
)
from .structured import OutputForm, require_guides, schema_guide


@dataclass(frozen=True)
class ToolTurn:
    """How the tools of one request are called."""

    form: ToolForm
    tools: list[Tool]
    max_calls: int
    prefix: str = ""
    """End of the prompt, or of the thinking: the beginning of a call that must come."""
    guide: Guide | None = None
    marks: Mapping[int, str] = field(default_factory=dict)
    """Special tokens that stand in calls."""

    def parser(self) -> CallParser:
        """A parser of the calls in one sample."""
        names = [tool.function.name for tool in self.tools]
        parser = CallParser(self.form, names, max_calls=self.max_calls)
        parser.feed(self.prefix)
        return parser


async def tool_prompt(
    call: Call[ChatRequest], models: Models, form: OutputForm | None
) -> tuple[list[int], Thinking | None, ToolTurn | None]:
    """The prompt of a chat that has tools, or in which tools were called, and how they are called.

    With it the thinking, if the prompt ends inside it. A call that must come begins the answer: the
    prompt's end has its beginning unless that is the thinking. Raises ApiError.
    """
    request, service = call.request, call.service
    if request.continue_final_message or not request.add_generation_prompt:
        raise bad_request(
            "A chat with tools cannot be continued: the model is to answer it.",
            "continue_final_message",
        )
    tokenizer = models.generator
    turn_of = partial(tool_turn, service, request, form)
    must_call = request.tool_choice not in (None, "none", "auto")
    turn = await form_read(turn_of) if must_call else turn_of()
    tools = request.tools if turn else []
    texts = [message.text for message in request.messages]
    arguments = [each.function.arguments for m in request.messages for each in m.tool_calls or ()]
    more = (*arguments, plain_tools(tools))
    characters = require_length(tokenizer, service.generator.context, *texts, *more)
    await filter_messages(service.filters, request.messages)
    if service.filters.of_input and await filtered(service.filters, more) != [*more]:
        raise bad_request(
            "The content filters would change the tools, or the arguments of a call.",
            "tools",
            "content_filter",
        )
    call_form = turn.form if turn else form_of(tokenizer.chat_template)

    def read() -> tuple[list[int], Thinking | None, ToolTurn | None]:
        text, thinking = _chat_text(models, request.messages, tools, call_form)
        prefix = turn.prefix if turn and not thinking else ""
        return service.generator.prompt_ids(text + prefix), thinking, turn

    return await tokenised(characters, read)


def _chat_text(
    models: Models,
    messages: Sequence[ChatMessage],
    tools: Sequence[Tool],
    form: ToolForm,
) -> tuple[str, Thinking | None]:
    """A chat with tools as the model reads it, and its thinking if the text ends inside that."""
    tokenizer = models.generator
    check_turns(messages)
    chat = for_template(messages) if form.in_template else in_text(messages, tools)
    listed = [tool.plain() for tool in tools] if form.in_template else []
    listed = inert_texts(tokenizer, listed)
    with refusals_of_template():
        turns = shown_chat(tokenizer, chat)
        text = tokenizer.chat(turns, generation_prompt=True, tools=listed)
        thinking = models.thinking_in(turns, listed)
    if (missing := missing_part(messages, tools, unmarked(text))) is not None:
        raise bad_request(f"The model's chat template drops or changes {missing}.", "messages")
    return thinking.prompt(text) if thinking else text, thinking


def tool_turn(service: Service, request: ChatRequest, form: OutputForm | None) -> ToolTurn | None:
    """How a request has its tools called, beside a `form`; None: none can be. Raises ApiError."""
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
    max_calls = MAX_CALLS if several else 1
    if choice == "auto":
        if form is not None:
            raise bad_request(
                f"{form.param} cannot be combined with tools that may be called: set tool_choice "
                "to none or required.",
                form.param,
                "unsupported_parameter",
            )
        return ToolTurn(call_form, tools, max_calls, marks=marks)
    if request.ignore_eos:
        raise bad_request("ignore_eos and a call that must come exclude each other.", "ignore_eos")
    require_guides(service.deployment, "tool_choice")
    prefix, schema = forced_call(call_form, tools, several=several)
    try:
        guide = schema_guide(schema)
    except ConfigError as error:
        raise bad_request(f"The parameters of the tools: {error}", "tools") from None
    return ToolTurn(call_form, tools, max_calls, prefix, guide, marks)


def _marks(tokenizer: Tokenizer, form: ToolForm) -> dict[int, str]:
    marks = {form.opener, form.closer, form.args_mark, "[CALL_ID]"} - {""}
    return {token: text for token, text in tokenizer.special_texts.items() if text in marks}


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
            yield structs.replace(delta, text=text, finish=finish, calls=calls)
