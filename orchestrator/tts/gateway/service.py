"""What every handler works with: the engines of one deployment, and what the gateway allows."""

from __future__ import annotations

from dataclasses import dataclass, field

from tts.build.spec import Deployment
from tts.session import AsyncSession
from tts.strategies.catalog import strategy_names

from .draining import Drain
from .generation import TextGenerator
from .joining import Joining
from .observability import Observer
from .openai.errors import ApiError
from .safety import FilterChain, Keyring, Limiter

MAX_BODY = 4 << 20


@dataclass(frozen=True)
class Settings:
    """What the gateway allows."""

    max_body: int = MAX_BODY
    """Bytes of a request's body."""
    deadline_s: float = 600.0
    """The most that a search may take; a request may ask for less."""
    max_n: int = 1024
    """Completions of a search."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may read answers; `*`: any."""
    otlp_endpoint: str | None = None
    """Base URL of an OpenTelemetry collector; None: as OpenTelemetry's variables say."""
    keep_prompts: bool = False
    """Whether the log of requests has prompts and answers."""


@dataclass
class Service:
    """An open session, and what stands between it and its users."""

    session: AsyncSession
    generator: TextGenerator
    settings: Settings
    keyring: Keyring
    filters: FilterChain
    observer: Observer
    drain: Drain = field(default_factory=Drain)
    limiter: Limiter = field(default_factory=Limiter)
    joining: Joining = field(default_factory=Joining)
    strategies: list[str] = field(default_factory=strategy_names)
    """The strategies by name: each is a model."""

    @property
    def deployment(self) -> Deployment:
        """What is served."""
        return self.session.deployment

    def strategy_of(self, model: str) -> str | None:
        """The strategy that a model's name stands for; None: plain generation.

        Raises ApiError for a name that is not served.
        """
        base, colon, strategy = model.partition(":")
        if base == self.deployment.name and (not colon or strategy in self.strategies):
            return strategy or None
        raise ApiError(
            404,
            f"The model {model!r:.200} is not served here; GET /v1/models lists those that are.",
            code="model_not_found",
            param="model",
        )
