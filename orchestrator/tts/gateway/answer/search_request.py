"""Which search a request asks for, if it asks for one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tts.problem import Problem
from tts.runs.config import Limits, RunConfig
from tts.session.plan import Plan
from tts.session.strategy import choose

from ..call import Call, Service, require_allowed
from ..openai.errors import bad_request
from ..openai.requests import PLAIN, Request, SearchOptions
from .prompts import with_budget
from .structured import OutputForm

_ANNOUNCED = (b"x-stainless-read-timeout", b"x-stainless-timeout")
"""Headers in which OpenAI's clients say how long they wait for an answer, in seconds."""
_DELIVERY_S = 1.0
"""The part of a client's patience that is left for the answer to reach it."""
_CLOSING_S = 30.0
"""The most of a deadline that a search leaves for an answer in a form of its own."""


@dataclass(frozen=True)
class SearchRequest:
    """A problem, and how it is to be searched."""

    problem: Problem
    plan: Plan
    """Its search: the strategy with the parameters that the request gives, the seed, the limits."""
    n: int
    deadline_s: float
    """For all of the answer; where one is written after the search, that ends earlier."""

    @property
    def config(self) -> RunConfig:
        """The configuration that the request asks for."""
        return self.plan.request


def read_search_request(
    call: Call[Request], problem: Problem, form: OutputForm | None = None
) -> SearchRequest:
    """The search that a call asks for, with answers of `form`; raises ApiError."""
    service, request = call.service, call.request
    _refuse_unsupported(request)
    options = request.tts or SearchOptions()
    deadline_s = _deadline_s(call, options)
    closing_s = 0.0 if form is None else min(_CLOSING_S, deadline_s / 4)
    config = RunConfig(
        strategy=_strategy(call.strategy, options),
        parameters={**_parameters(service, request, options), **(form.in_box if form else {})},
        seed=options.seed if options.seed is not None else request.seed or 0,
        limits=Limits(options.budget_tokens, deadline_s - closing_s),
    )
    model = f"{service.deployment.name}:{config.strategy}"
    require_allowed(call.exchange, model, param="tts.strategy")
    strategy = choose(config.strategy, service.deployment, config.parameters)
    n = strategy.config.n if strategy.config else 1
    if n > service.settings.max_n:
        raise bad_request(
            f"n is {n}; this gateway allows {service.settings.max_n} completions of a search.",
            "tts.n",
        )
    if strategy.config and strategy.config.thinking_budget:
        models = service.session.models.asked_with(problem.chat_template_kwargs)
        in_parameters = "thinking_budget" in options.parameters
        param = "tts.parameters.thinking_budget" if in_parameters else "thinking_token_budget"
        with_budget(models.thinking, strategy.config.thinking_budget, param)
    plan = Plan(config, service.deployment, (problem,), strategy)
    call.record.strategy = config.strategy
    return SearchRequest(problem, plan, n, deadline_s)


def _strategy(of_model: str | None, options: SearchOptions) -> str:
    if of_model and options.strategy not in (None, of_model):
        raise bad_request(
            f"The model's name says {of_model}, tts.strategy says {options.strategy}.",
            "tts.strategy",
        )
    return of_model or options.strategy or RunConfig().strategy


def _parameters(service: Service, request: Request, options: SearchOptions) -> dict[str, Any]:
    """The strategy's parameters, from all fields that are called otherwise for other clients."""
    counts = {n for n in (options.n, options.budget, request.budget) if n is not None}
    if len(counts) > 1:
        raise bad_request("tts.n and budget say the same with different numbers.", "budget")
    parameters = dict(options.parameters)
    schema = parameters.get("answer_schema")
    if isinstance(schema, str) and not schema.lstrip().startswith("{"):
        raise bad_request(  # which programs and commands may give as a file
            "answer_schema must be the schema itself: the gateway reads no files.",
            "tts.parameters.answer_schema",
        )
    limit, context = request.limit, service.deployment.generator.max_seq_len
    fields = {
        "n": next(iter(counts), None),
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": max(request.top_k or 0, 0) or None,
        "min_p": request.min_p or None,
        "max_tokens": limit and min(limit, context),  # as of plain generation
        "thinking_budget": getattr(request, "thinking_token_budget", None) or None,
    }
    for parameter, value in fields.items():
        if value is not None:
            if parameter in parameters:
                raise bad_request(f"{parameter} is given twice.", f"tts.parameters.{parameter}")
            parameters[parameter] = value
    return parameters


def _refuse_unsupported(request: Request) -> None:
    """Refuse what plain generation honours and a search cannot."""
    for name, is_set in (
        ("n", request.n > 1),
        ("stop_token_ids", bool(request.stop_token_ids)),
        ("ignore_eos", request.ignore_eos),
        ("echo", getattr(request, "echo", False)),
        *((name, name != "min_p") for name in (request.shaping or PLAIN).changes()),
        ("logprobs", getattr(request, "logprobs", None) not in (None, False)),
        ("top_logprobs", getattr(request, "top_logprobs", 0)),
        ("continue_final_message", getattr(request, "continue_final_message", False)),
    ):
        if is_set:
            hint = " How many completions it makes is tts.n." if name == "n" else ""
            raise bad_request(
                f"{name} has no meaning for a search.{hint}", name, "unsupported_parameter"
            )


def _deadline_s(call: Call[Request], options: SearchOptions) -> float:
    """Seconds: the least of ours, the request's, and what its client waits for an answer."""
    limits = [call.service.settings.deadline_s]
    if options.deadline_s is not None:
        limits.append(options.deadline_s)
    if not call.request.stream:  # in a stream it waits so long for each chunk
        for name in _ANNOUNCED:
            try:
                announced = float(call.exchange.header(name) or "nan")
            except ValueError:
                continue
            if announced > 0:
                limits.append(max(announced - _DELIVERY_S, announced / 2))
    return min(limits)
