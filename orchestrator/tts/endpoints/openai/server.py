"""A server that already runs, and whether it reuses the prefixes of prompts.

Without that every step pays for all the text before it. Hybrid models lose it silently behind vLLM
(vllm-project/vllm issue 51250).
"""

from __future__ import annotations

import random
import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tts.base.errors import EndpointTimeout, EndpointUnavailable
from tts.build.spec import ANSWER_TIMEOUT_S

from ..retry import PATIENCE_S
from .dialects import DIALECTS, Ask, Dialect
from .http_client import Http
from .probing import Capabilities, probe


class OpenAIServer:
    """A server with OpenAI's interface; an async context manager.

    `probe` finds out how the server is asked. Its endpoints (OpenAIGenerator, OpenAIVerifier) may
    be made before that, but are used after it.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        patience_s: float = PATIENCE_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        comes_back: Callable[[], bool] = lambda: False,
    ) -> None:
        """`url` is what stands before /v1; `model` may be left out where only one is served.

        `comes_back`: see `Http`. Raises ConfigError for anything but an address.
        """
        self.url = url
        self.http = Http(url, api_key, patience_s, answer_timeout_s, comes_back)
        self.capabilities: Capabilities | None = None
        """Its reported capabilities; None until it has answered."""
        self._model = model
        self._dialect: Dialect | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    @property
    def dialect(self) -> Dialect:
        """How it is asked."""
        assert self._dialect is not None, "probe() finds out how a server is asked: it comes first"
        return self._dialect

    @property
    def abilities(self) -> Capabilities:
        """Its capabilities, now that it has answered."""
        assert self.capabilities is not None, "probe() finds out what a server can do"
        return self.capabilities

    def limit_patience(self, seconds: float) -> None:
        """Send requests again for so long only."""
        self.http.patience_s = seconds

    async def probe(self, patience_s: float | None = None) -> Capabilities:
        """Find out what it is and can do; raises EndpointUnavailable, or ServerError and why."""
        try:
            self.capabilities, self._dialect = await self.http.patiently(
                lambda: probe(self.http, self._model), patience_s
            )
        except (EndpointUnavailable, EndpointTimeout) as error:
            raise EndpointUnavailable(
                error.message,
                hint=error.hint or "Start it first; the url is the address that it prints.",
            ) from error
        return self.abilities

    def reset_prefix_cache(self) -> bool:
        """Keep further requests of ours from earlier prefixes; False where it cannot."""
        if field := self.dialect.salt:
            self.http.every_request = {field: secrets.token_hex(8)}
        return bool(field)

    async def aclose(self) -> None:
        """End what runs on it."""
        await self.http.aclose()

    def __str__(self) -> str:
        """The server as errors name it."""
        kind = f" ({DIALECTS[self.capabilities.kind].title})" if self.capabilities else ""
        return f"The server at {self.http.address}{kind}"


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

    `context`: tokens that its prompts may have. Raises EndpointError.
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
    """How many of a prompt's tokens came from a cache, where an answer of any kind says so."""
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
