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
from .capabilities import NAMES, Capabilities
from .dialects import Dialect
from .generator import OpenAIGenerator
from .http_client import Http
from .outputs import Word
from .probing import probe
from .verifier import OpenAIVerifier


class OpenAIServer:
    """A server with OpenAI's interface; an async context manager.

    `probe` finds out how the server is asked. Its endpoints may be made before that, but are used
    after it.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        patience_s: float = PATIENCE_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        """`url` is what stands before /v1; `model` may be left out where only one is served.

        Raises ConfigError for anything but an address.
        """
        self.url = url
        self.http = Http(url, api_key, patience_s, answer_timeout_s)
        self.capabilities: Capabilities | None = None
        """Its reported capabilities; None until it has answered."""
        self._model = model
        self._dialect: Dialect | None = None

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
    def known(self) -> Capabilities:
        """Its capabilities, now that it has answered."""
        assert self.capabilities is not None, "probe() finds out what a server can do"
        return self.capabilities

    async def probe(self) -> Capabilities:
        """Find out what it is and can do, once it answers.

        Raises EndpointUnavailable if it does not, ServerError with the reason if it cannot be used.
        """
        try:
            found = await self.http.patiently(lambda: probe(self.http, self._model))
        except (EndpointUnavailable, EndpointTimeout) as error:
            raise EndpointUnavailable(
                error.message,
                hint=error.hint or "Start it first; the url is the address that it prints.",
            ) from error
        self.capabilities, self._dialect = found
        return self.capabilities

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
        and at `end_stop_words`. Raises ServerError for a server that is known to give none.
        """
        if self.capabilities and not self.capabilities.generates:
            raise ServerError(
                f"The server at {self.http.address} gives scores and no completions.",
                hint="Give the generator's section the url of a server that generates.",
            )
        return OpenAIGenerator(
            self,
            tokenizer=tokenizer,
            end_id=end_id,
            step_stop_words=step_stop_words,
            end_stop_words=end_stop_words,
            step_delimiter=step_delimiter,
        )

    def verifier(self, *, tokenizer: Tokenizer, spec: VerifierRole) -> Verifier:
        """The verifier that a deployment's section describes.

        Raises ServerError with the reason where the server is known not to score its format,
        CheckpointError where the tokenizer does not go with it.
        """
        return OpenAIVerifier(self, tokenizer, spec)

    async def aclose(self) -> None:
        """End what runs on it."""
        await self.http.aclose()

    def __str__(self) -> str:
        """As errors name it."""
        kind = f" ({NAMES[self.capabilities.kind]})" if self.capabilities else ""
        return f"The server at {self.http.address}{kind}"
