"""Whether a server reuses the prefixes of prompts, which decides what a tree search costs.

Without that every step pays for all the text before it. Hybrid models lose it silently behind vLLM
(vllm-project/vllm issue 51250).
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

from .dialects import Ask
from .server import OpenAIServer

_ROUNDS = 3
_MOST_TOKENS = 2048
"""Most tokens of a prompt: computing so many takes a time that can be told from noise."""
_IDS = range(10, 500)
"""Tokens that any vocabulary has."""
_SHORTER = 0.7
"""A prompt whose prefix is there takes less than this share of the time of one that is new."""


@dataclass(frozen=True)
class PrefixReuse:
    """What was seen of a server."""

    reused: bool
    why: str
    """The figures, for people."""


async def prefix_reuse(server: OpenAIServer, context: int) -> PrefixReuse:
    """Ask for a token after new prompts, and after the same ones with another end.

    `context`: tokens that its prompts may have. The server must have been probed. Raises
    EndpointError.
    """
    size = min(_MOST_TOKENS, context // 2)
    new, again, cached = [], [], list[int]()
    for _ in range(_ROUNDS):
        prompt = random.choices(_IDS, k=size)
        seconds, _ = await _first_token(server, [*prompt, _IDS[0]])
        new.append(seconds)
        seconds, hits = await _first_token(server, [*prompt, _IDS[1]])
        again.append(seconds)
        cached += [] if hits is None else [hits]
    if cached:
        most = max(cached)
        return PrefixReuse(2 * most > size, f"{most:,} of {size:,} tokens came from its cache")
    first, second = statistics.median(new), statistics.median(again)
    times = f"a prompt of {size:,} tokens took {1e3 * first:.0f} ms, again {1e3 * second:.0f} ms"
    return PrefixReuse(second < _SHORTER * first, times)


async def _first_token(server: OpenAIServer, prompt: list[int]) -> tuple[float, int | None]:
    """Seconds to one token, and how many of the prompt's came from the cache, if it says so."""
    dialect = server.dialect
    began = time.perf_counter()
    body = dialect.sample(server.abilities.model, Ask(prompt, 1, ignore_end=True))
    answer = await server.http.post(dialect.path, body)
    return time.perf_counter() - began, cached_tokens(answer)


def cached_tokens(answer: Any) -> int | None:
    """How many of a prompt's tokens came from a cache, where an answer says so.

    OpenAI's field (vLLM with --enable-prompt-tokens-details, trtllm-serve), SGLang's, llama.cpp's.
    """
    for path in (
        ("usage", "prompt_tokens_details", "cached_tokens"),
        ("meta_info", "cached_tokens"),
        ("timings", "cache_n"),
    ):
        value = answer
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if type(value) is int:
            return value
    return None
