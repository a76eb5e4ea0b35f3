"""`/v1/rerank`: candidate answers to a question in the order of the verifier's scores.

The shape is that of Cohere, Jina and vLLM. A document is an answer; its relevance is the score of
its last step, given the steps before it.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tts.prompting.step_ends import steps_of
from tts.search import significant

from .answer.prompts import filtered, require_length, score_calls_of, tokenised
from .call import Call
from .openai.errors import bad_request
from .openai.requests import RerankRequest


async def rerank(call: Call[RerankRequest]) -> None:
    """Score the answers, and list them best first."""
    service, request, record = call.service, call.request, call.record
    texts = [each if isinstance(each, str) else each.text for each in request.documents]
    models = service.session.models
    if reads := models.dialogue or models.critic:
        context = service.deployment.verifier_model.max_seq_len
        for text in texts:
            require_length(reads.tokenizer, context, request.query, text, field="documents")
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
    record.prompt_tokens = record.verifier_tokens = tokens
    call.admit(tokens)
    record.t2 = time.monotonic()
    results = await service.session.score_calls(calls)
    record.search_tokens = new_tokens = sum(result.tokens for result in results)
    record.t3 = record.t4 = time.monotonic()
    order = sorted(range(len(results)), key=lambda place: (-results[place].score, place))
    body = {
        "id": record.id,
        "model": request.model,
        "results": [
            _result(
                place, results[place].score, answers[place] if request.return_documents else None
            )
            for place in order[: request.top_n]
        ],
        "usage": {
            "prompt_tokens": tokens,
            "completion_tokens": new_tokens,
            "total_tokens": tokens + new_tokens,
        },
    }
    await call.exchange.respond(msgspec.json.encode(body))


def _result(place: int, score: float, text: str | None) -> dict[str, Any]:
    document = {} if text is None else {"document": {"text": text}}
    return {"index": place, "relevance_score": significant(score), **document}
