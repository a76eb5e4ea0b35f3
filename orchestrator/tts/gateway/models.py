"""`/v1/models`: the deployment, and with it every strategy."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from .exchange import Exchange
from .service import Service

_STARTED = int(time.time())


async def list_models(service: Service, exchange: Exchange) -> None:
    """All models."""
    name = service.deployment.name
    names = [name, *(f"{name}:{strategy}" for strategy in service.strategies)]
    models = [_model(service, each) for each in names]
    await exchange.respond(msgspec.json.encode({"object": "list", "data": models}))


async def one_model(service: Service, exchange: Exchange) -> None:
    """The model that the path names."""
    name = exchange.path.removeprefix("/v1/models/")
    service.strategy_of(name)
    await exchange.respond(msgspec.json.encode(_model(service, name)))


def _model(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "tts",
        "max_model_len": service.generator.context,
    }
