"""What a gateway says of itself: whether it lives and can answer, its models, metrics and API.

It can answer if both engines have just given a real answer. The description of the API comes from
the very types that requests are read by, that of a model's parameters from its configuration.
"""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import timeout
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from prometheus_client import generate_latest

from tts.base.errors import TtsError
from tts.build.spec.section import field_doc
from tts.datasets.demo import EXAMPLES
from tts.prompting.chat import takes_system
from tts.search import SearchConfig
from tts.session.outcome import DOUBTFUL, is_demo_pair
from tts.session.strategy import choose
from tts.strategies.catalog import find_strategy

from .call import Call, Service, strategy_of
from .draining import refused
from .openai.errors import ApiError, Error
from .openai.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    ModelRequest,
    PoolingRequest,
    RerankRequest,
    TokenizeRequest,
    TokenRequest,
)
from .openai.responses import ResponsesRequest
from .output.generation import PLAIN_TEMPERATURE, PLAIN_TOP_P

logger = logging.getLogger(__name__)

PATIENCE_S = 10.0
FRESH_S = 2.0
"""How long an answer of the engines counts, so that probes do not become load."""
MODEL = "/v1/models/"
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
    text = generate_latest(call.service.recorder.metrics.registry)
    await call.exchange.respond(text, content_type=METRICS_TYPE)


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
    model = {**_model(service, name), "tts": _model_card(service, strategy)}
    await call.exchange.respond(msgspec.json.encode(model))


def _model(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "tts",
        "max_model_len": service.generator.context,
    }


SAMPLING = ("temperature", "top_p", "top_k", "min_p", "max_tokens")
"""Parameters of a search that plain generation has as well."""
_PLAIN = {
    "temperature": PLAIN_TEMPERATURE,
    "top_p": PLAIN_TOP_P,
    "top_k": 0,
    "min_p": 0.0,
    "max_tokens": None,
}
_SEED = "The same seed gives the same answer."
_GENERAL = (
    "What is the sum of the first 50 odd numbers?",
    "A train travels 180 km in 2.5 hours. What is its average speed in km/h?",
    "How many positive divisors does 360 have?",
    "Find the remainder when 7^100 is divided by 13.",
)
"""Questions for models that were made for more than the demo pair was."""


def _model_card(service: Service, strategy: str | None) -> dict[str, Any]:
    """The field `tts` of a model, perhaps with a strategy; ConfigError if that cannot be loaded."""
    deployment = service.deployment
    if strategy is None:
        about = "One sample, without a search."
        described = _described(SearchConfig, _PLAIN)
        described["max_tokens"]["description"] = "Most tokens of the answer."
    else:
        entry = find_strategy(strategy)
        config = choose(strategy, deployment, {}).config
        assert config is not None
        about, defaults = entry.summary, config.model_dump(mode="json", exclude=set(entry.fixed))
        described = _described(type(config), defaults)
    sampling = {name: described.pop(name) for name in SAMPLING}
    sampling["seed"] = {"type": "integer", "default": 0 if strategy else None, "description": _SEED}
    return {
        "strategy": strategy,
        "about": about,
        "sampling": sampling,
        "parameters": described,
        "system_messages": takes_system(service.generator.models.generator),
        "examples": EXAMPLES if is_demo_pair(deployment) else _GENERAL,
        "warns_below": DOUBTFUL,
    }


def _described(kind: Any, defaults: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters that have a default, each with its type, bounds and a line of help."""
    schema = kind.model_json_schema()["properties"]
    described = {}
    for name, default in defaults.items():
        facts = {key: value for key, value in schema[name].items() if key != "title"}
        if "$ref" in facts:  # a structure: too much for a form
            facts = {"type": "object"}
        described[name] = {**facts, "default": default, "description": _help(kind, name)}
    return described


def _help(kind: Any, name: str) -> str:
    try:
        return " ".join(field_doc(name, kind).split())
    except (OSError, TypeError):  # a plug-in without its source
        return ""


POSTS: dict[str, tuple[type[ModelRequest] | type[TokenRequest], str]] = {
    "/v1/chat/completions": (ChatRequest, "Answer a chat, plainly or by a search"),
    "/v1/completions": (CompletionRequest, "Complete prompts, or search for an answer to one"),
    "/v1/responses": (ResponsesRequest, "Answer a conversation as a response, which is not stored"),
    "/pooling": (PoolingRequest, "Score the steps of an answer"),
    "/v1/rerank": (RerankRequest, "Order answers to a question by their scores"),
    "/tokenize": (TokenizeRequest, "Token ids of a text or a chat"),
    "/detokenize": (DetokenizeRequest, "Text of token ids"),
}
"""Type of the body of each path, and its summary; all other paths take GET."""
_GETS = {
    "/v1/models": "The deployment, and with it every strategy",
    "/v1/models/{model}": "One model",
    "/tokenizer_info": "Special tokens and the chat template",
    "/metrics": "Metrics in Prometheus's format",
    "/health": "Whether the gateway lives",
    "/ready": "Whether both engines answer",
}
_ERRORS = {
    "400": "The request is wrong, or cannot be honoured",
    "401": "No valid API key",
    "404": "No such model",
    "408": "The body did not come in time",
    "413": "The body is too large",
    "429": "A limit of the key is reached",
    "503": "The engines do not answer",
    "504": "The deadline has passed",
}


async def openapi(call: Call[None]) -> None:
    """Respond with the description."""
    await call.exchange.respond(document())


@cache
def document() -> bytes:
    """The OpenAPI document as JSON."""
    kinds = [kind for kind, _ in POSTS.values()]
    schemas, components = msgspec.json.schema_components(
        [*kinds, Error], ref_template="#/components/schemas/{name}"
    )
    bodies = dict(zip(kinds, schemas, strict=False))
    paths: dict[str, Any] = {}
    for path, (kind, summary) in POSTS.items():
        body = {"required": True, "content": {"application/json": {"schema": bodies[kind]}}}
        paths[path] = {"post": {**_operation(summary), "requestBody": body}}
    for path, summary in _GETS.items():
        paths[path] = {"get": _operation(summary)}
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    paths["/v1/models/{model}"]["get"]["parameters"] = [name]
    for path in ("/health", "/ready"):
        paths[path]["get"]["security"] = []
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "tts gateway", "version": _version()},
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"key": []}],
        }
    )


def _operation(summary: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    errors = {status: {"description": what, "content": content} for status, what in _ERRORS.items()}
    return {"summary": summary, "responses": {"200": {"description": "The answer"}, **errors}}


def _version() -> str:
    try:
        return version("tts-toolkit")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0"
