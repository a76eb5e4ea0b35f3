"""The Responses API as a request: what it says, and the chat that it stands for. Pure.

Nothing is kept between requests: what names something kept is refused.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from .errors import ApiError, bad_request, quoted
from .messages import (
    CalledFunction,
    ChatMessage,
    Function,
    FunctionName,
    Name,
    NamedTool,
    Tool,
    ToolCall,
)
from .requests import (
    MAX_TOOLS,
    ChatRequest,
    Count,
    JsonSchema,
    ResponseFormat,
    TemplatedRequest,
    TopLogProbs,
)

LOG_PROBS = "message.output_text.logprobs"
"""Item of `include` that asks for log-probabilities."""


class InputPart(Struct):
    """A part of a message, or of what a tool has said: text is the only kind."""

    type: Literal["input_text", "output_text", "refusal", "reasoning_text", "summary_text"]
    text: str = ""
    refusal: str = ""


class InputItem(Struct):
    """An item of the conversation. Which fields it has, its type says."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None


class FunctionTool(Struct):
    """A function that the model may call."""

    name: Name
    type: Literal["function"] = "function"
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedFunction(FunctionName):
    """The `tool_choice` that names the function to call."""

    type: Literal["function"] = "function"


class TextFormat(Struct):
    """The form of the answer's text."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    schema: dict[str, Any] | bool | None = None
    name: str = ""
    strict: bool | None = None


class TextOptions(Struct):
    """The form that the answer's text must have."""

    format: TextFormat | None = None


class Reasoning(Struct):
    """How much the model is to think."""

    effort: str | None = None


class ResponsesRequest(TemplatedRequest, kw_only=True):
    """`/v1/responses`."""

    input: str | list[InputItem]
    instructions: str | None = None
    tools: list[FunctionTool] = field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = None
    parallel_tool_calls: bool = True
    max_output_tokens: Count | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    top_logprobs: TopLogProbs = 0
    include: list[str] = field(default_factory=list)
    metadata: dict[str, Any] | None = None
    """Given back in the answer."""
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool = False
    truncation: str = "disabled"


def as_chat(request: ResponsesRequest) -> ChatRequest:
    """The chat that a request stands for; raises ApiError for what needs a memory, or a tool."""
    _refuse(request)
    shared = {name: getattr(request, name) for name in TemplatedRequest.__struct_fields__}
    if request.reasoning and request.reasoning.effort is not None:
        shared["reasoning_effort"] = request.reasoning.effort
    if request.max_output_tokens is not None:
        shared["max_completion_tokens"] = request.max_output_tokens
    if form := _form(request):
        shared["response_format"] = form
    choice = request.tool_choice
    return ChatRequest(
        **shared,
        messages=_messages(request),
        tools=[
            Tool(Function(each.name, each.description, each.parameters, each.strict))
            for each in request.tools
        ],
        tool_choice=NamedTool(choice) if isinstance(choice, NamedFunction) else choice,
        parallel_tool_calls=request.parallel_tool_calls,
        logprobs=LOG_PROBS in request.include or request.top_logprobs > 0,
        top_logprobs=request.top_logprobs,
    )


def _refuse(request: ResponsesRequest) -> None:
    for name in ("previous_response_id", "conversation", "prompt"):
        if getattr(request, name) is not None:
            raise _unsupported(
                name,
                "is not supported here: nothing is stored. Send the whole conversation as input.",
            )
    if request.background:
        raise _unsupported("background", "is not supported here: nothing is stored.")
    if request.truncation != "disabled":
        raise _unsupported("truncation", "may only be disabled here.")
    if request.n != 1:
        raise _unsupported("n", "may only be 1: a response is one.")
    if len(request.tools) > MAX_TOOLS:
        raise bad_request(f"A request has at most {MAX_TOOLS} tools.", "tools")


def _unsupported(name: str, what: str) -> ApiError:
    return bad_request(f"{name} {what}", name, "unsupported_parameter")


def _form(request: ResponsesRequest) -> ResponseFormat | None:
    form = request.text.format if request.text else None
    if form is None:
        return None
    if request.response_format is not None:
        raise bad_request("text.format and response_format both say a form.", "text.format")
    if form.type != "json_schema":
        return ResponseFormat(form.type)
    return ResponseFormat("json_schema", JsonSchema(form.schema, form.name, form.strict))


def _messages(request: ResponsesRequest) -> list[ChatMessage]:
    """The conversation: calls in a row are one message, with the text that stands before them."""
    messages: list[ChatMessage] = []
    if request.instructions:
        messages.append(ChatMessage("system", request.instructions))
    if isinstance(request.input, str):
        return [*messages, ChatMessage("user", request.input)]
    for place, item in enumerate(request.input):
        where = f"input[{place}]"
        if item.type == "message":
            if item.role is None:
                raise bad_request("A message needs a role.", f"{where}.role")
            messages.append(ChatMessage(item.role, _text(item.content, f"{where}.content")))
        elif item.type == "function_call":
            call = _call(item, where)
            last = messages[-1] if messages else None
            if last is None or last.role != "assistant":
                messages.append(last := ChatMessage("assistant"))
            last.tool_calls = [*(last.tool_calls or ()), call]
        elif item.type == "function_call_output":
            if item.call_id is None:
                raise bad_request("What a tool has said needs a call_id.", f"{where}.call_id")
            output = _text(item.output, f"{where}.output")
            messages.append(ChatMessage("tool", output, tool_call_id=item.call_id))
        # a model's reasoning is in no later prompt, as chat templates have it
    if len(messages) == bool(request.instructions):
        raise bad_request("input has no message.", "input")
    return messages


def _call(item: InputItem, where: str) -> ToolCall:
    if item.call_id is None or item.name is None or item.arguments is None:
        raise bad_request("A function_call needs call_id, name and arguments.", where)
    return ToolCall(item.call_id, CalledFunction(item.name, item.arguments))


def _text(content: str | list[InputPart] | None, where: str) -> str:
    if content is None:
        raise bad_request(f"{quoted(where)[1:-1]} is missing.", where)
    if isinstance(content, str):
        return content
    return "".join(part.text or part.refusal for part in content)
