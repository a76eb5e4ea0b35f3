"""One request of a client on its way to an answer, and the service that gives it.

A call is read, and charged to the client's key; every handler is given one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from tts.build.spec import Deployment
from tts.session import AsyncSession
from tts.strategies.catalog import strategy_names

from .draining import Drain
from .exchange import Exchange
from .observability.record import ServedRequest
from .observability.recorder import Recorder
from .openai.errors import ApiError, quoted
from .openai.requests import ModelRequest, TokenRequest, read_request
from .output.generation import TextGenerator
from .output.running_searches import RunningSearches
from .safety.filters import FilterChain
from .safety.keys import Keyring
from .safety.limits import Limiter, Refusal
from .safety.usage import day_of

MAX_BODY = 4 << 20


@dataclass(frozen=True)
class Settings:
    """Settings of a gateway: what it allows, what it keeps."""

    max_body: int = MAX_BODY
    deadline_s: float = 600.0
    """The most that a search may take; a request may ask for less."""
    max_n: int = 1024
    """Completions of a search."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may read answers; `*`: any."""
    otlp_endpoint: str | None = None
    """Base URL of an OpenTelemetry collector; None: as OpenTelemetry's variables say."""
    keep_prompts: bool = False
    keep_addresses: bool = True


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

    @cached_property
    def models(self) -> list[str]:
        """The names that its deployment has as a model: by itself, and with each strategy."""
        name = self.deployment.name
        return [name, *(f"{name}:{strategy}" for strategy in self.strategies)]


IGNORED = "x-tts-ignored"
"""The header of a response that names the fields of its request that nobody knows."""
_MAX_NAMES = 20

R_co = TypeVar("R_co", covariant=True)
Body = TypeVar("Body", bound=ModelRequest | TokenRequest)
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Call(Generic[R_co]):
    """One request of a client: who serves it, its exchange, and what it says."""

    service: Service
    exchange: Exchange
    request: R_co
    """The request that its body holds; None of a GET."""
    body: bytes = b""
    strategy: str | None = None
    """The strategy that its model's name stands for; None: plain generation."""

    @property
    def record(self) -> ServedRequest:
        """The record of the request."""
        return self.exchange.record

    def admit(self, tokens: int, *, search: bool = False) -> None:
        """Charge what the request may use to its key: so many tokens; raises ApiError (429)."""
        exchange, service = self.exchange, self.service
        if (key := exchange.key) is not None:
            admitted = service.limiter.usage_of(key.id, key.limits).admit(
                time.monotonic_ns(),
                tokens=tokens,
                search=search,
                spending=service.recorder.spending_of(key.id),
            )
            exchange.admission = _require(admitted, exchange)
            exchange.extra_headers += admitted.headers
        exchange.record.t1 = time.monotonic()


def authenticate(service: Service, exchange: Exchange) -> None:
    """Find the key that a request comes with; raises ApiError if it needs one."""
    if not service.keyring.required:
        return
    scheme, _, secret = (exchange.header(b"authorization") or "").partition(" ")
    key = service.keyring.find(secret.strip()) if scheme.lower() == "bearer" else None
    if key is not None:
        exchange.record.key = key.id
        if key.is_valid(time.time()):
            exchange.key = key
            return
    message = "An API key is needed: Authorization: Bearer."
    if key is not None and key.is_replaced:
        day = day_of(key.rotated or 0.0)
        message = f"This secret of the API key {key.id} was replaced on {day}. Ask for the new one."
    elif key is not None:
        message = f"The API key {key.id} has expired."
    elif secret:
        message = "The API key is not valid."
        _require(service.limiter.reject(exchange.client, time.monotonic_ns()), exchange)
    headers = {"www-authenticate": "Bearer"}
    raise ApiError(401, message, code="invalid_api_key", headers=headers)


async def read_call(service: Service, exchange: Exchange, kind: type[Body]) -> Call[Body]:
    """The call that a body holds for the deployment it names, charged as a request; or ApiError."""
    body = await exchange.body(service.settings.max_body)
    if (key := exchange.key) is not None:
        usage = service.limiter.usage_of(key.id, key.limits)
        _require(usage.arrive(time.monotonic_ns()), exchange)
    request, ignored = read_request(kind, body)
    if ignored:
        exchange.add_header(IGNORED, ", ".join(name[:40] for name in ignored[:_MAX_NAMES]))
    service, strategy = service.of_model(request.model or ""), None
    if isinstance(request, ModelRequest):
        strategy = strategy_of(service, exchange, request.model)
        exchange.record.model = request.model
    else:
        require_allowed(exchange, *service.models)
    return Call(service, exchange, request, body, strategy)


def strategy_of(service: Service, exchange: Exchange, model: str) -> str | None:
    """The strategy in a model's name, None for plain generation; ApiError if not allowed."""
    if model not in service.models:
        raise ApiError(
            404,
            f"The model {quoted(model)} is not served here; GET /v1/models lists those that are.",
            code="model_not_found",
            param="model",
        )
    require_allowed(exchange, model)
    return model.partition(":")[2] or None


def require_allowed(exchange: Exchange, *models: str, param: str = "model") -> None:
    """Raise ApiError unless the request's key may use one of these models."""
    if exchange.key is not None and not any(map(exchange.key.may_use, models)):
        raise ApiError(
            403,
            f"This key may not use {quoted(models[0])}; GET /v1/models lists what it may.",
            code="model_not_allowed",
            param=param,
        )


def _require(admitted: Outcome | Refusal, exchange: Exchange) -> Outcome:
    """The admission of a request; raises ApiError for a refusal."""
    if isinstance(admitted, Refusal):
        exchange.extra_headers += admitted.headers
        raise ApiError(429, admitted.message, code=admitted.code)
    return admitted
