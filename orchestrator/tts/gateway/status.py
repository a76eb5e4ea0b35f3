"""State of a gateway: whether it lives and can answer, its models, its metrics.

It can answer if both engines have just given a real answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import timeout
from typing import Any

import msgspec

from tts.base.errors import TtsError

from .call import Call, strategy_of
from .draining import refused
from .model_card import model_card
from .openai.errors import ApiError
from .service import Service

logger = logging.getLogger(__name__)

PATIENCE_S = 10.0
FRESH_S = 2.0
"""How long an answer of the engines counts, so that probes do not become load."""
MODEL = "/v1/models/"
"""Beginning of the paths of single models."""
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_STARTED = int(time.time())


async def health(call: Call[None]) -> None:
    """Answer `/health`: the gateway lives, nothing else is asked."""
    await call.exchange.respond(b'{"status":"ok"}')


class Readiness:
    """`/ready`: the last proof that the engines answer."""

    def __init__(self) -> None:
        self._proven = float("-inf")
        self._proving = asyncio.Lock()

    async def __call__(self, call: Call[None]) -> None:
        """Answer a probe: 200, or 503 with the reason."""
        service = call.service
        if service.drain.began:
            raise refused()
        for each in service.services:
            if not each.session.replicas.some_work():
                raise ApiError(503, f"No server of {each.deployment.name} works now.")
        async with self._proving:
            if time.monotonic() - self._proven > FRESH_S:
                await asyncio.gather(*map(_prove, service.services))
                self._proven = time.monotonic()
        await call.exchange.respond(b'{"status":"ready"}')


async def _prove(service: Service) -> None:
    """Have the generator write a token, and the verifier score a step."""
    try:
        async with timeout(PATIENCE_S):
            await service.session.generate("1", max_tokens=1, temperature=0.0)
            await service.session.score("1", ["1"])
    except TimeoutError:
        raise ApiError(503, f"The engines did not answer within {PATIENCE_S:.0f} s.") from None
    except TtsError as error:
        logger.warning("the engines do not answer: %s", error.message)
        raise ApiError(503, "The engines do not answer.") from None


async def metrics(call: Call[None]) -> None:
    """Answer `/metrics`, which Prometheus scrapes."""
    text = call.service.recorder.metrics.exposition()
    await call.exchange.respond(text.encode(), content_type=METRICS_TYPE)


async def list_models(call: Call[None]) -> None:
    """List at `/v1/models` every deployment, and with it every strategy."""
    key = call.exchange.key
    models = [
        _model(each, name)
        for each in call.service.services
        for name in each.models
        if key is None or key.may_use(name)
    ]
    await call.exchange.respond(msgspec.json.encode({"object": "list", "data": models}))


async def one_model(call: Call[None]) -> None:
    """Describe the model that the path names, with what a request to it can set (`tts`)."""
    name = call.exchange.path.removeprefix(MODEL)
    service = call.service.of_model(name)
    strategy = strategy_of(service, call.exchange, name)
    model = {**_model(service, name), "tts": model_card(service, strategy)}
    await call.exchange.respond(msgspec.json.encode(model))


def _model(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "tts",
        "max_model_len": service.generator.context,
    }
