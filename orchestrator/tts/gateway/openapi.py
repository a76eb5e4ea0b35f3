"""`/openapi.json`: what the gateway takes, from the very types that requests are read by."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from .call import Call
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
        kinds, ref_template="#/components/schemas/{name}"
    )
    bodies = dict(zip(kinds, schemas, strict=True))
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
                "schemas": {**components, "Error": _ERROR},
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"key": []}],
        }
    )


_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def _operation(summary: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    errors = {status: {"description": what, "content": content} for status, what in _ERRORS.items()}
    return {"summary": summary, "responses": {"200": {"description": "The answer"}, **errors}}


def _version() -> str:
    try:
        return version("tts-toolkit")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0"
