"""`/pooling`: the verifier's scores of the steps of an answer, in the shape that reward-hub reads.

The last message is the assistant's; its steps end where the deployment's end, or where Qwen's
process reward models mark it. Each step gives a pair: wrong, right.
"""

from __future__ import annotations

import secrets
import time

import msgspec

from .exchange import Exchange
from .openai.errors import bad_request
from .openai.requests import ChatMessage, PoolingRequest
from .reading import admit, read
from .service import Service

QWEN_MARK = "<extra_0>"


async def pooling(service: Service, exchange: Exchange) -> None:
    """Score the steps of a chat's last message."""
    request, _ = await read(service, exchange, PoolingRequest)
    service.strategy_of(request.model)
    exchange.record.model = request.model
    question, answer = map(service.filters.input, _question_and_answer(request.messages))
    steps = steps_of(answer, service.deployment.generator.step_delimiter)
    if not steps:
        raise bad_request("The last message has no steps.", "messages")
    tokens = _dialogue_tokens(service, question, steps)
    exchange.record.prompt_tokens = exchange.record.verifier_tokens = tokens
    admit(service, exchange, tokens, search=False)
    exchange.record.t2 = time.monotonic()
    scores = await service.session.score(question, steps)
    exchange.record.t3 = exchange.record.t4 = time.monotonic()
    data = [[round(1 - score, 6), score] for score in scores]
    body = {
        "id": "pool-" + secrets.token_hex(12),
        "object": "list",
        "created": int(time.time()),
        "model": request.model,
        "data": [{"index": 0, "object": "pooling", "data": data}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
    }
    await exchange.respond(msgspec.json.encode(body))


def steps_of(answer: str, delimiter: str) -> list[str]:
    """The steps of an answer, without those that say nothing."""
    parts = answer.split(QWEN_MARK if QWEN_MARK in answer else delimiter)
    return [part for part in parts if part.strip()]


def _question_and_answer(messages: list[ChatMessage]) -> tuple[str, str]:
    asked = [message for message in messages if message.role not in ("system", "developer")]
    if [message.role for message in asked] != ["user", "assistant"]:
        raise bad_request(
            "The messages must be a question of the user and the assistant's answer to it: a "
            "verifier judges the steps of one answer.",
            "messages",
        )
    return asked[0].text, asked[1].text


def _dialogue_tokens(service: Service, question: str, steps: list[str]) -> int:
    """Tokens of the verifier's dialogue over all steps; 0 for a verifier that takes text."""
    dialogue = service.session.models.dialogue
    if dialogue is None:
        return 0
    ids = dialogue.first(question, steps[0].strip())
    for step in steps[1:]:
        ids = dialogue.extend(ids, step.strip())
    return len(ids)
