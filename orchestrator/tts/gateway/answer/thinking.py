"""The thinking before an answer, as a request sets it: variables of the chat template, a budget.

A request that wants no thinking (`enable_thinking: false`, `reasoning_effort: none`, a budget of 0)
gets none, or an error: a model that does not think is as it is, and for others the template says.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tts.base.errors import CheckpointError
from tts.build.thinking import Thinking, require_budget
from tts.prompting import Models

from ..openai.errors import bad_request, quoted
from ..openai.requests import TemplatedRequest, TokenizeRequest

MAX_VARIABLES = 4_000
"""Characters of the variables of a request: each set of them is kept."""
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""OpenAI's efforts: thinking is on, for a template that knows no more."""
_OFF = {"enable_thinking": False, "reasoning_effort": "none"}
"""Variables with the values by which templates switch thinking off."""


def template_variables(
    models: Models, request: TemplatedRequest | TokenizeRequest
) -> dict[str, Any]:
    """The variables of the chat template that a request sets; raises ApiError.

    The template reads all of them, and thinking is off where the request says so.
    """
    switches = ((name, getattr(request, name)) for name in _OFF)
    fields: dict[str, Any] = {name: value for name, value in switches if value is not None}
    variables = {**request.chat_template_kwargs, **fields}
    if not variables and request.thinking_token_budget != 0:
        return {}
    if len(json.dumps(variables)) > MAX_VARIABLES:
        raise bad_request(
            f"The variables of the chat template are longer than {MAX_VARIABLES:,} characters.",
            "chat_template_kwargs",
        )
    names = _template_names(models)
    off = _off(variables, request.thinking_token_budget)
    if off:
        variables = {
            name: value
            for name, value in variables.items()
            if name in names or not _is_off(name, value)
        }
        switch = next((name for name in _OFF if name in names), None)
        if models.thinking and switch:
            variables[switch] = _OFF[switch]
    elif request.reasoning_effort in EFFORTS and names & _OFF.keys() == {"enable_thinking"}:
        del variables["reasoning_effort"]
        variables.setdefault("enable_thinking", True)
    says = f"Its chat template reads: {', '.join(sorted(names)) or 'no variables'}."
    if wrong := next((name for name in variables if name not in names), None):
        param = wrong if wrong in fields else "chat_template_kwargs"
        raise bad_request(f"This model does not know {quoted(wrong)}. {says}", param)
    try:
        thinking = models.asked_with(variables).thinking
    except CheckpointError as error:  # without the folder in which the template lies
        message = error.message.replace(f" of {models.generator.checkpoint}", "")
        raise bad_request(message, next(iter(fields), "chat_template_kwargs")) from None
    if off and thinking:
        raise bad_request(f"{off}: this model's thinking cannot be switched off. {says}", off)
    return variables


def _template_names(models: Models) -> frozenset[str]:
    """The variables that the chat template reads."""
    try:
        return models.generator.chat_variables
    except CheckpointError:  # no template at all: whoever renders it says so
        return frozenset()


def _off(variables: dict[str, Any], budget: int | None) -> str | None:
    """The field that wants no thinking."""
    if budget == 0:
        return "thinking_token_budget"
    return next((name for name in reversed(_OFF) if _is_off(name, variables.get(name))), None)


def _is_off(name: str, value: Any) -> bool:
    return name in _OFF and value == _OFF[name]


def with_budget(
    thinking: Thinking | None, budget: int | None, param: str = "thinking_token_budget"
) -> Thinking | None:
    """Thinking of at most so many tokens, if a request says how many; raises ApiError."""
    if thinking is None or not budget:
        return thinking
    try:
        require_budget(param, budget, len(thinking.closing_ids))
    except CheckpointError as error:
        raise bad_request(error.message, param) from None
    return replace(thinking, budget=budget)
