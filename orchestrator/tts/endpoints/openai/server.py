"""A server that already runs, and what leads to its two endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tts.build.errors import EndpointTimeout, EndpointUnavailable, ServerError
from tts.build.spec import ANSWER_TIMEOUT_S, VerifierRole
from tts.build.tokenizer import Tokenizer

from ..base import StreamingGenerator, Verifier
from ..retry import PATIENCE_S
from .capabilities import Capabilities
from .dialects import Dialect
from .generator import OpenAIGenerator
from .http_client import Http
from .outputs import Word
from .probing import probe
from .verifier import verifier_of


class OpenAIServer:
    """A server with OpenAI's interface; an async context manager.

    `probe` comes first: it finds out how the server is asked.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        patience_s: float = PATIENCE_S,
        most_connections: int = 0,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        """`url` is what stands before /v1; `model` may be left out where only one is served.

        `most_connections` are opened at a time, 0: one for each request in flight. Raises
        ConfigError for anything but an address.
        """
        self._http = Http(url, api_key, patience_s, most_connections, answer_timeout_s)
        self._model = model
        self._known: tuple[Capabilities, Dialect] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def address(self) -> str:
        """Where it is, for people."""
        return self._http.address

    @property
    def patience_s(self) -> float:
        """How long a request is sent again; less where another server can take it."""
        return self._http.patience_s

    @patience_s.setter
    def patience_s(self, seconds: float) -> None:
        self._http.patience_s = seconds

    async def probe(self) -> Capabilities:
        """Find out what it is and can do, once it answers.

        Raises ServerError with the reason and what to do if it cannot be used.
        """
        try:
            self._known = await self._http.patiently(lambda: probe(self._http, self._model))
        except (EndpointUnavailable, EndpointTimeout) as error:
            raise ServerError(
                error.message,
                hint=error.hint or "Start it first; the url is the address that it prints.",
            ) from error
        return self._known[0]

    def generator(
        self,
        *,
        tokenizer: Tokenizer,
        end_id: int,
        step_stop_words: Sequence[Word],
        end_stop_words: Sequence[Word] = (),
        step_delimiter: str,
    ) -> StreamingGenerator:
        """The generator; `tokenizer` is that of the model which the server runs.

        A step ends at `step_delimiter` in the text and at `step_stop_words`, a sequence at `end_id`
        and at `end_stop_words`. Raises ServerError for a server without completions.
        """
        capabilities, dialect = self._probed()
        if not capabilities.generates:
            raise ServerError(
                f"The server at {self.address} gives scores and no completions.",
                hint="Give the generator's section the url of a server that generates.",
            )
        return OpenAIGenerator(
            self._http,
            dialect,
            capabilities,
            tokenizer=tokenizer,
            end_id=end_id,
            step_stop_words=step_stop_words,
            end_stop_words=end_stop_words,
            step_delimiter=step_delimiter,
        )

    def verifier(self, *, tokenizer: Tokenizer, spec: VerifierRole) -> Verifier:
        """The verifier that a deployment's section describes.

        Raises ServerError with the reason where the server cannot score its format, CheckpointError
        where the tokenizer does not go with it.
        """
        capabilities, dialect = self._probed()
        return verifier_of(self._http, dialect, capabilities, tokenizer=tokenizer, spec=spec)

    async def aclose(self) -> None:
        """End what runs on it."""
        await self._http.aclose()

    def _probed(self) -> tuple[Capabilities, Dialect]:
        if self._known is None:
            raise RuntimeError("probe() finds out how a server is asked: it comes first")
        return self._known
