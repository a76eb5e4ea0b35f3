"""OpenAI's own client against a gateway: `python openai_client.py ADDRESS` (http://host:port).

It needs the package `openai` alone, so it runs in the environment of any version.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import openai

QUESTION = [{"role": "user", "content": "Compute 12 + 30."}]
SEARCH = "demo:beam-search"

Client = Any
"""Not the package's own type, which knows no fields but OpenAI's; versions differ, too."""


def main() -> None:
    """Ask for everything once; an assertion says what was not as it should be."""
    address = sys.argv[1]
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    seen: dict[str, object] = {"openai": openai.__version__}
    seen["models"] = len(client.models.list().data)
    seen["chat"] = chat(client)
    seen["streamed"] = streamed(client)
    seen["completions"] = completions(client)
    seen["search"] = search(client)
    seen["search streamed"] = search_streamed(client)
    seen["refused"] = refused(client)
    seen["cancelled"] = asyncio.run(cancelled(address))
    print(json.dumps(seen))


def chat(client: Client) -> str:
    """Plain generation, two choices, true counts, log-probabilities."""
    answer = client.chat.completions.create(
        model="demo", messages=QUESTION, n=2, temperature=0, max_completion_tokens=64, logprobs=True
    )
    texts = [choice.message.content for choice in answer.choices]
    assert len(texts) == 2
    assert texts[0] == texts[1]
    tokens = [len(choice.logprobs.content) for choice in answer.choices]
    assert sum(tokens) <= answer.usage.completion_tokens <= sum(tokens) + 2  # the end of a text
    return str(texts[0])


def streamed(client: Client) -> int:
    """The same, token by token."""
    whole = client.chat.completions.create(model="demo", messages=QUESTION, temperature=0)
    stream = client.chat.completions.create(
        model="demo",
        messages=QUESTION,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    return len(chunks)


def completions(client: Client) -> int:
    """Prompts as texts and as token ids, and a stop string."""
    answer = client.completions.create(
        model="demo", prompt=["1 + 1", "2 + 2"], max_tokens=8, seed=1, stop="\n\n"
    )
    assert len(answer.choices) == 2
    tokens = client.post("../tokenize", body={"model": "demo", "prompt": "1 + 1"}, cast_to=object)
    by_ids = client.completions.create(
        model="demo", prompt=tokens["tokens"], max_tokens=8, temperature=0
    )
    by_text = client.completions.create(model="demo", prompt="1 + 1", max_tokens=8, temperature=0)
    assert by_ids.choices[0].text == by_text.choices[0].text
    return len(tokens["tokens"])


def search(client: Client) -> str:
    """A search as a model."""
    answer = client.chat.completions.create(
        model=SEARCH, messages=QUESTION, extra_body={"tts": {"n": 4, "seed": 1}}
    )
    usage = answer.usage
    assert usage.completion_tokens_details.reasoning_tokens <= usage.completion_tokens
    return str(answer.tts["answer"])


def search_streamed(client: Client) -> dict[str, int]:
    """Every chunk is parsed by the client, progress included."""
    stream = client.chat.completions.create(
        model=SEARCH,
        messages=QUESTION,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"tts": {"n": 4, "seed": 2}},
    )
    chunks = list(stream)
    steps = [c for c in chunks if (c.model_extra or {}).get("tts", {}) and "steps" in c.tts]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert steps
    assert "boxed" in text
    assert chunks[-1].usage.total_tokens > 0
    return {"chunks": len(chunks), "with steps": len(steps)}


def refused(client: Client) -> list[int]:
    """What cannot be honoured is refused, by the client's own exceptions."""
    codes: list[int] = []
    for kind, fields in (
        (openai.BadRequestError, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        (openai.NotFoundError, {"model": "gpt-4"}),
        (openai.BadRequestError, {"temperature": -1}),
        (openai.BadRequestError, {"messages": [{"role": "user", "content": "1 " * 5000}]}),
    ):
        try:
            client.chat.completions.create(**{"model": "demo", "messages": QUESTION, **fields})
        except kind as error:
            codes.append(error.status_code)
    assert len(codes) == 4, codes
    return codes


async def cancelled(address: str) -> float:
    """A stream that is closed early, and the gateway goes on; seconds until it is closed."""
    client: Client = openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    began = time.perf_counter()
    async with client:
        stream = await client.chat.completions.create(
            model=SEARCH, messages=QUESTION, stream=True, extra_body={"tts": {"n": 64, "seed": 3}}
        )
        async for _ in stream:
            break
        await stream.close()
        taken = time.perf_counter() - began
        answer = await client.chat.completions.create(
            model="demo", messages=QUESTION, temperature=0
        )
        assert "42" in answer.choices[0].message.content
    return round(taken, 3)


if __name__ == "__main__":
    main()
