"""A server that already runs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Self

from tts.base.errors import EndpointTimeout, EndpointUnavailable
from tts.build.spec import ANSWER_TIMEOUT_S

from ..retry import PATIENCE_S
from .capabilities import NAMES, Capabilities
from .dialects import Dialect
from .http_client import Http
from .probing import probe


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

        `comes_back` says whether a server that is gone is being started again.

        Raises ConfigError for anything but an address.
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
    def patience_s(self) -> float:
        """How long a request is sent again; less where another server can take it."""
        return self.http.patience_s

    @patience_s.setter
    def patience_s(self, seconds: float) -> None:
        self.http.patience_s = seconds

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

    async def probe(self) -> Capabilities:
        """Find out what it is and can do, once it answers.

        Raises EndpointUnavailable if it does not, ServerError with the reason if it cannot be used.
        """
        try:
            self.capabilities, self._dialect = await self.http.patiently(
                lambda: probe(self.http, self._model)
            )
        except (EndpointUnavailable, EndpointTimeout) as error:
            raise EndpointUnavailable(
                error.message,
                hint=error.hint or "Start it first; the url is the address that it prints.",
            ) from error
        return self.abilities

    def reset_prefix_cache(self) -> bool:
        """Let no further request find the prefixes of earlier ones, without touching those of other
        clients; False where the server cannot.
        """
        if field := self.dialect.salt:
            self.http.every_request = {field: secrets.token_hex(8)}
        return bool(field)

    async def aclose(self) -> None:
        """End what runs on it."""
        await self.http.aclose()

    def __str__(self) -> str:
        """The server as errors name it."""
        kind = f" ({NAMES[self.capabilities.kind]})" if self.capabilities else ""
        return f"The server at {self.http.address}{kind}"
