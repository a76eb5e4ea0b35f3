"""The service that every call is answered by: the engines of one deployment, and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from tts.build.spec import Deployment
from tts.session import AsyncSession
from tts.strategies.catalog import strategy_names

from .draining import Drain
from .observability import Recorder
from .output.generation import TextGenerator
from .output.running_searches import RunningSearches
from .safety import FilterChain, Keyring, Limiter

MAX_BODY = 4 << 20


@dataclass(frozen=True)
class Settings:
    """Settings of a gateway: what it allows, what it keeps."""

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
    keep_addresses: bool = True
    """Whether the log of requests has the addresses of clients."""


@dataclass
class Service:
    """An open session, and what stands between it and its users."""

    session: AsyncSession
    generator: TextGenerator
    settings: Settings
    keyring: Keyring
    filters: FilterChain
    recorder: Recorder
    drain: Drain = field(default_factory=Drain)
    limiter: Limiter = field(default_factory=Limiter)
    searches: RunningSearches = field(default_factory=RunningSearches)
    strategies: list[str] = field(default_factory=strategy_names)
    """The strategies by name: each is a model."""
    services: list[Service] = field(default_factory=list, compare=False, repr=False)
    """The services of all deployments behind this address; this one adds itself."""

    def __post_init__(self) -> None:
        self.services.append(self)

    def of_model(self, model: str) -> Service:
        """The service of the deployment that a model's name begins with; this one without any."""
        base = model.partition(":")[0]
        return next((each for each in self.services if each.deployment.name == base), self)

    @property
    def deployment(self) -> Deployment:
        """The deployment that is served."""
        return self.session.deployment

    @property
    def models(self) -> list[str]:
        """The names that its deployment has as a model: by itself, and with each strategy."""
        name = self.deployment.name
        return [name, *(f"{name}:{strategy}" for strategy in self.strategies)]
