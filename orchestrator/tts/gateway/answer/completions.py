"""Handlers of texts, chats and responses: plain generation, or a search instead."""

from __future__ import annotations

from asyncio import timeout
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ..call import Call, Service
from ..openai.answers import (
    AnswerEnd,
    AnswerPart,
    ChatEncoder,
    Encoder,
    TextEncoder,
    TokenLogs,
    usage_of,
)
from ..openai.errors import ApiError, bad_request
from ..openai.messages import ChatMessage
from ..openai.requests import MAX_CHOICES, ChatRequest, CompletionRequest, Request
from ..openai.response_encoder import ResponsesEncoder
from ..openai.responses import ResponsesRequest, as_chat
from ..output.generation import Delta, Sampling
from ..output.sample_text import SampleText
from .candidates import answer_by_candidates, canonical
from .prompts import (
    chat_prompt,
    filtered,
    form_read,
    known_ids,
    prompt_text,
    require_length,
    template_variables,
    tokenised,
    with_budget,
)
from .respond import Response
from .searches import answer_by_search
from .structured import OutputForm, asks_form, output_form, require_guides
from .tool_turns import ToolTurn, reading_calls, tool_prompt

DEFAULT_MAX_TOKENS = 16
"""OpenAI's."""


async def completions(call: Call[CompletionRequest]) -> None:
    """Complete prompts, given as texts or as token ids."""
    request = call.request
    form = await _form(call)
    encoder = TextEncoder(call.record.id, request)
    if request.asks_search(call.strategy):
        (prompt, *others) = request.prompts
        if others or not isinstance(prompt, str):
            raise bad_request("A search takes one prompt, as text.", "prompt")
        await answer_by_search(call, encoder, [ChatMessage("user", prompt)], form)
        return
    if request.limit == 0 and not request.echo:
        raise bad_request("max_tokens is 0, and nothing is to be given back (echo).", "max_tokens")
    if request.limit is None:
        request.max_tokens = DEFAULT_MAX_TOKENS
    all_prompts = request.prompts
    _check(request, len(all_prompts) * request.n)
    prompts = await _tokenised(call.service, all_prompts, special=request.add_special_tokens)
    if not all(prompts):
        raise bad_request("A prompt is empty: it has no tokens.", "prompt")
    guide = form.guide if form else None
    conversation = await tokenised(len(all_prompts[0]), lambda: str(all_prompts[0]))
    sampling = Sampling(prompts, conversation, request.logprobs, request.echo, guide)
    await _generate(call, encoder, sampling)


async def _tokenised(
    service: Service, prompts: list[str | list[int]], *, special: bool
) -> list[list[int]]:
    """The token ids of each prompt, within the context and as the filters let it pass."""
    tokenizer, context = service.generator.models.generator, service.generator.context
    size = 0
    for prompt in prompts:
        if isinstance(prompt, str):
            size += require_length(tokenizer, context, prompt)
        else:
            service.generator.room(len(prompt), None)
            size += len(prompt)
    passed = await _filtered(service, prompts)

    def ids_of(prompt: str | list[int]) -> list[int]:
        if not isinstance(prompt, str):
            return known_ids(tokenizer, prompt)
        return service.generator.prompt_ids(prompt_text(tokenizer, prompt, special=special))

    return await tokenised(size, lambda: list(map(ids_of, passed)))


async def _filtered(service: Service, prompts: list[str | list[int]]) -> list[str | list[int]]:
    """Prompts as the filters let them pass; ApiError for token ids that they would change."""
    if not service.filters.of_input:
        return prompts
    tokenizer = service.generator.models.generator
    texts = [
        prompt if isinstance(prompt, str) else tokenizer.decode(known_ids(tokenizer, prompt))
        for prompt in prompts
    ]
    after = await filtered(service.filters, texts)
    passed: list[str | list[int]] = []
    for prompt, text, new_text in zip(prompts, texts, after, strict=True):
        if not isinstance(prompt, str) and new_text != text:
            raise bad_request(
                "The content filters would redact this prompt; give it as text, not as token ids.",
                "prompt",
                "content_filter",
            )
        passed.append(new_text if isinstance(prompt, str) else prompt)
    return passed


def _check(request: CompletionRequest, choices: int) -> None:
    if not 1 <= choices <= MAX_CHOICES:
        raise bad_request(
            f"The request asks for {choices} choices over all its prompts; 1 to {MAX_CHOICES} are "
            "allowed.",
            "prompt",
        )
    if request.best_of not in (None, request.n):
        raise bad_request(
            "best_of is not supported here: the models that end with a strategy's name choose the "
            "best of n by a verifier.",
            "best_of",
            "unsupported_parameter",
        )


async def chat_completions(call: Call[ChatRequest]) -> None:
    """Answer a chat."""
    await _answer_chat(call, ChatEncoder(call.record.id, call.request))


async def responses(call: Call[ResponsesRequest]) -> None:
    """Answer a request of the Responses API: a chat under another name. Nothing of it is kept."""
    chat = as_chat(call.request)
    encoder = ResponsesEncoder(call.record.id, call.request)
    call.exchange.broken_off = encoder.failed
    chat_call = Call(call.service, call.exchange, chat, call.body, call.strategy)
    await _answer_chat(chat_call, encoder)


async def _answer_chat(call: Call[ChatRequest], encoder: Encoder) -> None:
    request, models = call.request, call.service.generator.models
    form = await _form(call)
    variables = template_variables(models, request)
    models = models.asked_with(variables)
    with_budget(models.thinking, request.thinking_token_budget)
    search = request.asks_search(call.strategy)
    if search and not request.asks_tools:
        await answer_by_search(call, encoder, request.messages, form, variables)
        return
    turn, guide = None, form.guide if form else None
    if request.asks_tools:
        prompt, thinking, turn = await tool_prompt(call, models, form)
        guide = turn.guide if turn else guide
    else:
        prompt, thinking = await chat_prompt(call, models)
    sampling = Sampling(
        [prompt],
        _conversation(request.messages),
        None if search else _logs(request),
        guide=guide,
        marks=turn.marks if turn else {},
        thinking=with_budget(thinking, request.thinking_token_budget),
        lead=turn.prefix if turn and thinking else "",
    )
    if search:
        await answer_by_candidates(call, encoder, sampling, turn, variables)
    else:
        await _generate(call, encoder, sampling, turn)


def _logs(request: ChatRequest) -> int | None:
    if request.top_logprobs and not request.logprobs:
        raise bad_request("top_logprobs needs logprobs: true.", "top_logprobs")
    return request.top_logprobs if request.logprobs else None


async def _form(call: Call[Request]) -> OutputForm | None:
    if not asks_form(call.request):
        return None
    form = await form_read(lambda: output_form(call.request))
    if form:
        require_guides(call.service.deployment, form.param)
    return form


def _conversation(messages: list[ChatMessage]) -> str:
    """The part that all turns of a conversation share: its beginning, to the first question."""
    first = next((at for at, each in enumerate(messages) if each.role == "user"), 0)
    return "\0".join(message.text for message in messages[: first + 1])


async def _generate(
    call: Call[Request], encoder: Encoder, sampling: Sampling, turn: ToolTurn | None = None
) -> None:
    """Generate n choices for each prompt, and respond; `turn`: how calls of tools stand in them."""
    service, request, record = call.service, call.request, call.record
    prompts, generator = sampling.prompts, service.generator
    if sampling.logs is not None and service.filters.of_output:
        raise bad_request(
            "logprobs are not given here: answers are filtered, and they would tell what was.",
            "logprobs",
            "unsupported_parameter",
        )
    behind = generator.models.generator.encode(sampling.lead) if sampling.lead else ()
    limits = [generator.room(len(prompt) + len(behind), request.limit) for prompt in prompts]
    charged = call.exchange.key is not None
    generate_calls = generator.calls(request, sampling, limits, charged=charged)
    samples = [
        generator.sample(index, each, request, sampling)
        for index, each in enumerate(generate_calls)
    ]
    prompt_tokens = sum(map(len, prompts))
    call.admit(sum(limits) * request.n + prompt_tokens)
    record.prompt_tokens = prompt_tokens
    if service.recorder.keeps_prompts:
        record.prompt = "\n\n".join(map(generator.models.generator.decode, prompts))
    deltas = generator.merged(generate_calls, samples, record, sampling)
    if turn:
        deltas = reading_calls(deltas, turn, len(samples))
    limit_s = service.settings.deadline_s
    try:
        async with timeout(limit_s):
            await _send(call, Response(call, encoder), deltas, samples, logs=sampling.logs)
    except TimeoutError:
        raise ApiError(
            504, f"The answer was not complete within {limit_s:g} s.", code="deadline_exceeded"
        ) from None


async def _send(
    call: Call[Request],
    response: Response,
    deltas: AsyncGenerator[Delta, None],
    samples: Sequence[SampleText],
    *,
    logs: int | None,
) -> None:
    """Send deltas to the client, and count their tokens in the record even if it leaves early."""
    record, keeps_answer = call.record, call.service.recorder.keeps_prompts
    texts, tool_calls = [""] * len(samples), list[str]()
    token_texts = [] if logs is None else call.service.generator.models.generator.token_texts
    begins = [0] * len(samples)
    unopened = set(range(len(samples)))
    running = len(samples)
    try:
        async with aclosing(deltas):
            async for delta in deltas:
                index = delta.sample.index
                if keeps_answer:
                    texts[index] += delta.reasoning + delta.text
                    tool_calls += map(canonical, delta.calls)
                part = AnswerPart(
                    index, delta.text or None, delta.reasoning, None, delta.calls, delta.finish
                )
                if logs is not None:
                    part.logs = _token_logs(delta, token_texts, begins[index])
                    begins[index] += sum(map(len, part.logs.tokens))
                running -= delta.finish is not None
                if not running:
                    thought = _thought(samples)
                    tokens = _tokens(samples) - (thought or 0)
                    usage = usage_of(record.prompt_tokens, tokens, thought)
                    part.end = AnswerEnd(usage, {"gateway_ms": record.gateway_ms()})
                news = delta.text or delta.reasoning or delta.ids or delta.calls or delta.finish
                if news or index in unopened:
                    await response.send(part)
                unopened.discard(index)
    finally:
        record.answer_tokens = _tokens(samples)
        if keeps_answer:
            record.answer = "\n\n".join([*texts, *tool_calls])


def _tokens(samples: Sequence[SampleText]) -> int:
    return sum(sample.tokens for sample in samples)


def _thought(samples: Sequence[SampleText]) -> int | None:
    """Tokens of the thinking; None for samples without."""
    if not any(sample.thinking for sample in samples):
        return None
    return sum(sample.thought_tokens for sample in samples)


def _token_logs(delta: Delta, texts: Sequence[str], begin: int) -> TokenLogs:
    top = [[(texts[token], log_prob) for token, log_prob in row] for row in delta.top]
    return TokenLogs([texts[token] for token in delta.ids], delta.log_probs, top, begin)
