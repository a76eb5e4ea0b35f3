"""What the models make of texts that a client has: scores of steps, answers by score, token ids.

`/pooling` answers in the shape that reward-hub reads: the last message is the assistant's; its
steps end where the deployment's end, or where Qwen's process reward models mark it. Each step gives
a pair: wrong, right; of a verifier of whole answers the answer gives one.

`/v1/rerank` has the shape of Cohere, Jina and vLLM. A document is an answer; its relevance is the
score of its last step, given the steps before it.

`/tokenize`, `/detokenize` and `/tokenizer_info` are as vLLM has them and lm-eval asks them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tts.endpoints.base import ScoreCall
from tts.problem import Problem
from tts.prompting import Models
from tts.prompting.step_ends import steps_of
from tts.search import significant
from tts.session.outcome import doubts, probability_of
from tts.strategies.parameters import scores_answers

from .answer.prompts import (
    chat_text,
    filter_messages,
    filtered,
    known_ids,
    problem_of,
    prompt_text,
    require_length,
    score_calls_of,
    template_variables,
    tokenised,
)
from .call import Call, Service, require_allowed
from .openai.errors import bad_request
from .openai.requests import (
    MAX_SCORES,
    DetokenizeRequest,
    ModelRequest,
    PoolingRequest,
    RerankRequest,
    TokenizeRequest,
)


async def pooling(call: Call[PoolingRequest]) -> None:
    """Score the steps of a chat's last message."""
    deployment = call.service.deployment
    problem, calls = await _score_calls(call.service, call.request)
    scores, usage = await _scores(call, calls, len(calls[-1].input_ids))
    probability = probability_of(deployment, scores[-1])
    data = [[significant(1 - score), significant(score)] for score in scores]
    body = {
        "id": call.record.id,
        "object": "list",
        "created": int(time.time()),
        "model": call.request.model,
        "data": [{"index": 0, "object": "pooling", "data": data}],
        "usage": usage,
        "tts": {"warnings": doubts(deployment, problem.question, scores[-1], probability)},
    }
    await call.exchange.respond(msgspec.json.encode(body))


async def _scores(
    call: Call[ModelRequest], calls: Sequence[ScoreCall], tokens: int
) -> tuple[list[float], dict[str, int]]:
    """The scores of calls, whose prompt tokens are charged to the key, and the usage."""
    record = call.record
    call.admit(tokens)
    record.prompt_tokens = record.verifier_tokens = tokens
    record.t2 = time.monotonic()
    results = await call.service.session.score_calls(calls)
    record.t3 = record.t4 = time.monotonic()
    record.search_tokens = new = sum(result.tokens for result in results)
    usage = {"prompt_tokens": tokens, "completion_tokens": new, "total_tokens": tokens + new}
    return [result.score for result in results], usage


async def _score_calls(
    service: Service, request: PoolingRequest
) -> tuple[Problem, list[ScoreCall]]:
    """The question, and a call for each score; raises ApiError for what cannot be scored."""
    *conversation, answer = request.messages
    if answer.role != "assistant" or not conversation or conversation[-1].role != "user":
        raise bad_request(
            "The messages must be a question of the user, with any turns before it, and the "
            "assistant's answer to it: a verifier judges the steps of one answer.",
            "messages",
        )
    models = service.session.models
    characters = sum(len(message.text) for message in request.messages)
    texts = [each.text for each in request.messages if each.plain()["role"] != "system"]
    _require_readable(models, texts, "messages")
    await filter_messages(service.filters, request.messages)
    problem = problem_of(conversation)
    steps = steps_of(answer.text, service.deployment.generator.step_delimiter)
    if not 1 <= len(steps) <= MAX_SCORES:
        raise bad_request(
            f"The last message has {len(steps):,} steps; 1 to {MAX_SCORES:,} can be scored.",
            "messages",
        )
    question = problem.full_question
    calls = await tokenised(characters, lambda: score_calls_of(models, question, steps))
    return problem, calls[-1:] if scores_answers(service.deployment) else calls


def _require_readable(models: Models, texts: Sequence[str], field: str) -> None:
    """Raise ApiError for texts that are longer than the context of a verifier that is a model."""
    if reads := models.dialogue or models.critic:
        require_length(reads.tokenizer, models.verifier_context, *texts, field=field)


async def rerank(call: Call[RerankRequest]) -> None:
    """Score the answers, and list them best first."""
    service, request = call.service, call.request
    texts = [each if isinstance(each, str) else each.text for each in request.documents]
    models = service.session.models
    for text in texts:
        _require_readable(models, (request.query, text), "documents")
    question, *answers = await filtered(service.filters, (request.query, *texts))
    for place, text in enumerate((question, *answers)):
        if not text.strip():
            param = f"documents[{place - 1}]" if place else "query"
            raise bad_request(f"{param} says nothing.", param)
    delimiter = models.step_delimiter
    calls = await tokenised(
        len(question) + sum(map(len, answers)),
        lambda: [
            score_calls_of(models, question, steps_of(text, delimiter), "documents")[-1]
            for text in answers
        ],
    )
    tokens = sum(len(each.input_ids) for each in calls)
    scores, usage = await _scores(call, calls, tokens)
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    results: list[dict[str, Any]] = []
    for place in order[: request.top_n]:
        results.append({"index": place, "relevance_score": significant(scores[place])})
        if request.return_documents:
            results[-1]["document"] = {"text": answers[place]}
    body = {"id": call.record.id, "model": request.model, "results": results, "usage": usage}
    await call.exchange.respond(msgspec.json.encode(body))


async def tokenize(call: Call[TokenizeRequest]) -> None:
    """Respond with the token ids of a text or a chat."""
    call.admit(0)
    request, generator = call.request, call.service.generator
    models, tokenizer = generator.models, generator.models.generator
    if (request.prompt is None) == (request.messages is None):
        raise bad_request("Give either prompt or messages.", "prompt")
    if request.messages is not None:
        texts = [message.text for message in request.messages]
        models = models.asked_with(template_variables(models, request))

        def text() -> str:
            return chat_text(models, request)[0]
    else:
        texts = [request.prompt or ""]
        special = request.add_special_tokens
        text = partial(prompt_text, tokenizer, texts[0], special=special)
    characters = require_length(tokenizer, generator.context, *texts)
    ids = await tokenised(characters, lambda: tokenizer.encode(text()))
    answer = {"count": len(ids), "max_model_len": generator.context, "tokens": ids}
    await call.exchange.respond(msgspec.json.encode(answer))


async def detokenize(call: Call[DetokenizeRequest]) -> None:
    """Respond with the text of token ids."""
    call.admit(0)
    tokenizer, ids = call.service.generator.models.generator, call.request.tokens
    text = await tokenised(len(ids), lambda: tokenizer.decode(known_ids(tokenizer, ids)))
    await call.exchange.respond(msgspec.json.encode({"prompt": text}))


async def tokenizer_info(call: Call[None]) -> None:
    """Respond with facts for a client that formats chats itself."""
    service = call.service.of_model(call.exchange.query.get("model", ""))
    require_allowed(call.exchange, *service.models)
    tokenizer = service.generator.models.generator
    info: dict[str, Any] = {
        name: tokenizer.special(name) or None
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
    }
    info["chat_template"] = tokenizer.chat_template
    info["vocab_size"] = tokenizer.vocab_size
    info["model_max_length"] = service.generator.context
    await call.exchange.respond(msgspec.json.encode(info))
