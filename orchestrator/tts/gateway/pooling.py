"""`/pooling`: the verifier's scores of the steps of an answer, in the shape that reward-hub reads.

The last message is the assistant's; its steps end where the deployment's end, or where Qwen's
process reward models mark it. Each step gives a pair: wrong, right; of a verifier of whole answers
the answer gives one.
"""

from __future__ import annotations

import time

import msgspec

from tts.endpoints.base import ScoreCall
from tts.problem import Problem
from tts.prompting.step_ends import steps_of
from tts.search import significant
from tts.session.doubts import doubts, probability_of
from tts.strategies.parameters import scores_answers

from .answer.prompts import (
    filter_messages,
    problem_of,
    require_length,
    score_calls_of,
    tokenised,
)
from .call import Call
from .openai.errors import bad_request
from .openai.requests import MAX_SCORES, PoolingRequest
from .service import Service


async def pooling(call: Call[PoolingRequest]) -> None:
    """Score the steps of a chat's last message."""
    service, record = call.service, call.record
    problem, calls = await _score_calls(service, call.request)
    tokens = len(calls[-1].input_ids)
    call.admit(tokens)
    record.prompt_tokens = record.verifier_tokens = tokens
    record.t2 = time.monotonic()
    results = await service.session.score_calls(calls)
    scores = [result.score for result in results]
    record.search_tokens = new_tokens = sum(result.tokens for result in results)
    record.t3 = record.t4 = time.monotonic()
    probability = probability_of(service.deployment, scores[-1])
    data = [[significant(1 - score), significant(score)] for score in scores]
    body = {
        "id": record.id,
        "object": "list",
        "created": int(time.time()),
        "model": call.request.model,
        "data": [{"index": 0, "object": "pooling", "data": data}],
        "usage": {
            "prompt_tokens": tokens,
            "completion_tokens": new_tokens,
            "total_tokens": tokens + new_tokens,
        },
        "tts": {"warnings": doubts(service.deployment, problem.question, scores[-1], probability)},
    }
    await call.exchange.respond(msgspec.json.encode(body))


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
    if reads := models.dialogue or models.critic:
        context = service.deployment.verifier_model.max_seq_len
        texts = [each.text for each in request.messages if each.plain()["role"] != "system"]
        require_length(reads.tokenizer, context, *texts)
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
