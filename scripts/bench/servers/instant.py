"""An OpenAI-compatible server that answers as vLLM does, without a model: a token each 20 ms."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from typing import Any

STEP_S = 0.02
TOKEN, TEXT = 282, " of"
MODELS = {"data": [{"id": "instant", "object": "model", "owned_by": "vllm", "max_model_len": 8192}]}


def events(request: dict[str, Any], chat: bool) -> list[bytes]:
    """What streams to a client: a token at each place, and how many there were."""
    most = request.get("max_tokens") or 16
    about = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "instant"}
    chunks: list[dict[str, Any]] = []
    for place in range(most):
        end = {"index": 0, "finish_reason": "length" if place == most - 1 else None}
        form = {"delta": {"role": "assistant", "content": TEXT}} if chat else {"text": TEXT}
        chunks.append({"choices": [end | form | {"token_ids": [TOKEN]}]})
    usage = {"prompt_tokens": 1, "completion_tokens": most, "total_tokens": most + 1}
    chunks.append({"choices": [], "usage": usage})
    return [b"data: %s\n\n" % json.dumps(about | each).encode() for each in chunks]


async def step(step_end: list[asyncio.Event]) -> None:
    """End a step whenever its time is over: the event that all streams wait for."""
    while True:
        await asyncio.sleep(STEP_S)
        step_end[0].set()
        step_end[0] = asyncio.Event()


async def serve(
    step_end: list[asyncio.Event], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """The requests of one connection."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            path = head.split(b" ", 2)[1]
            lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            body = await reader.readexactly(int(lines.get(b"content-length", 0)))
            request = json.loads(body) if body else {}
            if request.get("stream"):
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"
                )
                chunks = events(request, path.endswith(b"/chat/completions"))
                for number, event in enumerate(chunks):
                    if number < len(chunks) - 1:
                        await step_end[0].wait()
                    writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
                continue
            answer: dict[str, Any] = MODELS
            if request:
                most = request.get("max_tokens") or 16
                choice = {"index": 0, "text": TEXT * most, "token_ids": [TOKEN] * most}
                answer = {"choices": [choice | {"finish_reason": "length"}]}
            text = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    """Serve at the port that the command line names."""
    step_end, port = [asyncio.Event()], int(sys.argv[1])
    await asyncio.start_server(partial(serve, step_end), "127.0.0.1", port, backlog=1024)
    await step(step_end)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
