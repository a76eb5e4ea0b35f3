"""A gateway as it is usually written: FastAPI, uvicorn with uvloop and httptools, tritonclient.

What `scripts/run bench.gateway` compares ours with. It streams chat completions of the same server,
with the same prompts, and measures its own latency at the same points: from the request's arrival
to the call of the server, and from the server's first answer to the first event.

    python fastapi_gateway.py --grpc HOST:PORT --checkpoint FOLDER --port PORT
"""

from __future__ import annotations

import argparse
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import tritonclient.grpc.aio as triton
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

GENERATOR = "generator"
NO_END_ID = -1


class ChatMessage(BaseModel):
    """One turn."""

    role: str
    content: str


class StreamOptions(BaseModel):
    """What a stream ends with."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """As much of OpenAI's chat completions as is measured."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int = Field(default=16, ge=1)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = 0
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False


class Backend:
    """The generator behind Triton's gRPC, and its tokenizer."""

    def __init__(self, address: str, checkpoint: Path) -> None:
        self.client = triton.InferenceServerClient(address)
        self.tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
        self.config = json.loads((checkpoint / "tokenizer_config.json").read_text())
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        self.template = environment.from_string(self.config["chat_template"])
        self.end_id = self.tokenizer.token_to_id(self.config["eos_token"])

    def prompt(self, messages: list[ChatMessage]) -> list[int]:
        """Token ids of a chat that the model is to answer."""
        text = self.template.render(
            messages=[message.model_dump() for message in messages],
            bos_token=self.config["bos_token"],
            add_generation_prompt=True,
        )
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    async def answers(self, ids: list[int], request: ChatRequest) -> AsyncIterator[list[int]]:
        """The token ids of each answer of the server, as they come."""
        values: dict[str, Any] = {
            "input_ids": np.array([ids], np.int32),
            "input_lengths": np.array([[len(ids)]], np.int32),
            "request_output_len": np.array([[request.max_tokens]], np.int32),
            "end_id": np.array([[NO_END_ID if request.ignore_eos else self.end_id]], np.int32),
            "temperature": np.array([[request.temperature]], np.float32),
            "runtime_top_p": np.array([[request.top_p]], np.float32),
            "seed": np.array([[request.seed]], np.uint64),
            "streaming": np.array([[request.stream]], np.bool_),
        }
        inputs = []
        for name, value in values.items():
            kind = triton.InferInput(name, list(value.shape), _TYPES[value.dtype.name])
            inputs.append(kind.set_data_from_numpy(value))

        async def asked() -> AsyncIterator[dict[str, Any]]:
            yield {
                "model_name": GENERATOR,
                "inputs": inputs,
                "request_id": uuid.uuid4().hex,
                "enable_empty_final_response": True,
            }

        async for result, error in self.client.stream_infer(asked()):
            if error is not None:
                raise HTTPException(502, str(error))
            tokens = result.as_numpy("output_ids")
            if tokens is not None:
                yield tokens.reshape(-1).tolist()
            if result.get_response().parameters["triton_final_response"].bool_param:
                return


_TYPES = {"int32": "INT32", "float32": "FP32", "uint64": "UINT64", "bool": "BOOL"}


class Arrival:
    """Notes when a request arrived, before anything of the framework runs."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] == "http":
            scope.setdefault("state", {})["arrived"] = time.monotonic()
        await self.app(scope, receive, send)


def make_app(address: str, checkpoint: Path) -> FastAPI:
    """The application."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.backend = Backend(address, checkpoint)
        yield
        await app.state.backend.client.close()

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(Arrival)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Any:
        backend: Backend = request.app.state.backend
        ids = backend.prompt(body.messages)
        if body.stream:
            events = _stream(backend, body, ids, request.state.arrived)
            return StreamingResponse(events, media_type="text/event-stream")
        return await _whole(backend, body, ids, request.state.arrived)

    return app


async def _whole(
    backend: Backend, body: ChatRequest, ids: list[int], arrived: float
) -> JSONResponse:
    sent = time.monotonic()
    tokens: list[int] = []
    answered = None
    async for new in backend.answers(ids, body):
        answered = answered or time.monotonic()
        tokens += new
    content = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": backend.tokenizer.decode(tokens)},
                "finish_reason": "length" if len(tokens) >= body.max_tokens else "stop",
            }
        ],
        "usage": _usage(ids, len(tokens)),
    }
    own = (sent - arrived) + (time.monotonic() - (answered or sent))
    return JSONResponse(content, headers={"x-tts-gateway-ms": f"{1000 * own:.3f}"})


async def _stream(
    backend: Backend, body: ChatRequest, ids: list[int], arrived: float
) -> AsyncIterator[str]:
    head = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": body.model,
    }

    def event(delta: dict[str, str], finish: str | None = None, **more: Any) -> str:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return f"data: {json.dumps({**head, 'choices': choices, **more})}\n\n"

    decode = DecodeStream(skip_special_tokens=True)
    count, own = 0, 0.0
    sent = time.monotonic()
    async for new in backend.answers(ids, body):
        if not count:
            answered = time.monotonic()
            first = event({"role": "assistant", "content": ""})
            own = (sent - arrived) + (time.monotonic() - answered)
            yield first
        count += len(new)
        text = "".join(decode.step(backend.tokenizer, token) or "" for token in new)
        if text:
            yield event({"content": text})
    yield event({}, "length" if count >= body.max_tokens else "stop")
    if body.stream_options and body.stream_options.include_usage:
        last = {**head, "choices": [], "usage": _usage(ids, count)}
        last["tts"] = {"gateway_ms": round(1000 * own, 3)}
        yield f"data: {json.dumps(last)}\n\n"
    yield "data: [DONE]\n\n"


def _usage(ids: list[int], count: int) -> dict[str, int]:
    return {
        "prompt_tokens": len(ids),
        "completion_tokens": count,
        "total_tokens": len(ids) + count,
    }


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--grpc", required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    uvicorn.run(
        make_app(arguments.grpc, arguments.checkpoint),
        host="127.0.0.1",
        port=arguments.port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
