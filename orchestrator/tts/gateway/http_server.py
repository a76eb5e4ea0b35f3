"""A gateway from its start to its end: where it listens, what it serves, how it stops."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import make_asgi_app

from tts.base.choices import ServerKind
from tts.base.errors import ConfigError
from tts.build.resolve import open_deployment
from tts.build.spec import Deployment
from tts.fleet.connecting import require_engines, serves
from tts.fleet.replicas import EnginePair, Replicas
from tts.fleet.routing import PolicyName, routing_policy
from tts.fleet.server import Server, in_loop, local_name, open_server
from tts.serving.server.triton import Triton
from tts.serving.server.triton_log import Loading
from tts.session import AsyncSession
from tts.session.functions import verifier_of

from . import process
from .app import App
from .call import Service, Settings
from .connections import SEND_BUFFER, HttpServer
from .database import DatabaseUnusable, database_file
from .draining import Drain
from .named_servers import NamedServers, follow
from .observability.ledger import Ledger
from .observability.recorder import Recorder
from .observability.telemetry import telemetry_of
from .output.generation import TextGenerator
from .safety.filters import FilterChain
from .safety.keys import ApiKey, Keyring
from .safety.limits import Limiter

FEW, MANY = "latency", "throughput"
"""The groups of `by-concurrency`: high tensor parallelism, and many replicas."""
SCRAPERS = 64
"""Connections to the metrics' own port at a time."""
KEYS_S = 1.0
"""Between two looks at what new keys are for."""
LOOK_S = 0.1
"""Between two looks at the gateway's own engines."""
Watch = Callable[[Replicas], Awaitable[None]]
"""Looks after the servers beside the gateway; ends it by what it raises."""


@dataclass(frozen=True)
class Listen:
    """Where the gateway listens; both TLS files, or neither."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0: one that is free."""
    certificate: Path | None = None
    key: Path | None = None
    metrics: Listen | None = None
    """Where the metrics are served besides, to everyone and by HTTP."""


@dataclass(frozen=True)
class Upstreams:
    """Which servers are used; by default those that are found on this machine, or one started."""

    addresses: tuple[str, ...] = ()
    file: Path | None = None
    """Names them instead, and may change while the gateway runs."""
    routing: PolicyName = "prefix-affinity"


async def serve(
    deployments: Sequence[str | Path],
    listen: Listen,
    upstreams: Upstreams,
    settings: Settings,
    filters: FilterChain,
    drain: Drain,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None] = lambda loading: None,
    kind: ServerKind | None = None,
    verifier: Any | None = None,
) -> None:
    """Serve deployments until they are drained, or cancelled; `say` gets a line per stage.

    `kind`: what runs the engines; None: what each deployment says. `verifier` scores instead of
    the deployment's. Upstreams and a verifier are those of one deployment.

    Raises TtsError; Terminated if it was drained and requests were left.
    """
    _check_tls(listen)
    if listen.metrics and 0 != listen.port == listen.metrics.port:
        raise ConfigError(f"--port and --metrics are both {listen.port}.", hint="Change one.")
    async with AsyncExitStack() as stack:
        sockets = [stack.enter_context(each) for each in bind(listen)]
        scraped = bind(listen.metrics) if listen.metrics else []
        for each in scraped:
            stack.enter_context(each)
        ledger = Ledger(database_file())
        stack.callback(ledger.close)
        keyring = Keyring(ledger.keys)
        keyring.require_for(listen.host)
        specs = [open_deployment(each).served_by(kind) for each in deployments]
        alone = upstreams != Upstreams(routing=upstreams.routing) or verifier is not None
        names = _names(specs, alone=alone)
        say(f"Opening the engines of {', '.join(names)}, to serve at {_address(listen, sockets)}")
        limiter = Limiter()
        telemetry = telemetry_of(settings.otlp_endpoint, ",".join(names))
        recorder = Recorder(ledger, telemetry, keeps_prompts=settings.keep_prompts)
        stack.callback(recorder.close)
        services: list[Service] = []
        watches: list[Callable[[], Awaitable[None]]] = []
        for deployment, spec in zip(deployments, specs, strict=True):
            servers = _servers(spec, upstreams, say, on_loading)
            groups, watch = await stack.enter_async_context(servers)
            session = AsyncSession(
                deployment,
                verifier=verifier_of(spec, verifier),
                endpoints=tuple(groups),
                server=kind,
                routing=routing_policy(upstreams.routing, few=FEW, many=MANY),
                groups=groups,
                say=say,
                on_loading=on_loading,
            )
            await stack.enter_async_context(session)
            generator = TextGenerator(session.models, session.replicas, filters)
            await generator.warm()
            Service(
                session,
                generator,
                settings,
                keyring,
                filters,
                recorder,
                drain,
                limiter,
                services=services,
            )
            watches.append(partial(watch, session.replicas))
        watches.append(partial(name_unserved, ledger.keys, services, say))
        process.started()
        await answer(
            services[0],
            listen,
            sockets,
            say,
            lambda: _first_of(*(watch() for watch in watches)),
            scraped,
        )


def _names(specs: Sequence[Deployment], *, alone: bool) -> list[str]:
    """The names of the deployments; raises ConfigError for some that cannot be served together."""
    names = [spec.name for spec in specs]
    if len(specs) > 1 and alone:
        raise ConfigError(
            "--endpoint, --endpoints-file and --verifier are for one deployment.",
            hint="Name the servers of each in its file, as endpoints.",
        )
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"Two deployments are called {name}: a model's name could mean either.",
                hint="Give one of them another name in its file.",
            )
    return names


async def name_unserved(
    keys: Callable[[], Mapping[bytes, ApiKey]],
    services: Sequence[Service],
    say: Callable[[str], None],
) -> None:
    """Say once of every key, new ones too, which of its models no service has; until cancelled."""
    reported: set[tuple[str, str]] = set()
    names = [service.deployment.name for service in services]
    served = [name for service in services for name in service.models]
    while True:
        with suppress(DatabaseUnusable):  # requests are told of that
            valid = [key for key in keys().values() if key.is_valid(time.time())]
            for key, pattern in [(each, pattern) for each in valid for pattern in each.models]:
                if (key.id, pattern) in reported or any(fnmatchcase(n, pattern) for n in served):
                    continue
                reported.add((key.id, pattern))
                say(
                    f"Key {key.id} ({key.name}) is for the model {pattern!r:.100}, which is not "
                    "served here; there are "
                    f"{', '.join(f'{name}, {name}:STRATEGY' for name in names)}."
                )
        await asyncio.sleep(KEYS_S)


async def answer(
    service: Service,
    listen: Listen,
    sockets: list[socket.socket],
    say: Callable[[str], None],
    watch: Callable[[], Awaitable[None]],
    scraped: Sequence[socket.socket] = (),
) -> None:
    """Answer requests that come to `sockets` until the service is drained, or cancelled, or `watch`
    raises something; at the sockets in `scraped` with the metrics alone, whoever asks.

    Raises ConfigError if it cannot listen there.
    """
    tls = (listen.certificate, listen.key) if listen.certificate and listen.key else None
    servers = {HttpServer(App(service), tls, process.max_connections()): sockets}
    if scraped:
        app = make_asgi_app(service.recorder.metrics.registry)
        servers[HttpServer(app, None, SCRAPERS)] = [*scraped]
    serving = [asyncio.ensure_future(server.serve(at)) for server, at in servers.items()]
    try:
        try:
            listening = asyncio.gather(*(server.listening.wait() for server in servers))
            await _first_of(*map(asyncio.shield, serving), listening)
        except OSError as error:  # another program was as quick, and listens by now
            raise _cannot_listen(listen, error) from error
        service.drain.open()
        names = ",".join(each.deployment.name for each in service.services)
        if scraped and listen.metrics:
            say(f"Metrics at http://{_address(listen.metrics, scraped)}/metrics, without a key")
        scheme = "https" if tls else "http"
        say(f"Serving {names} at {scheme}://{_address(listen, sockets)}/v1 (Ctrl-C ends it)")
        await _first_of(*map(asyncio.shield, serving), service.drain.drained(), watch())
    finally:
        await service.drain.end(*(each.session.stop_searches for each in service.services))
        for server in servers:
            server.stop()
        await asyncio.wait(serving)


def _address(listen: Listen, sockets: Sequence[socket.socket]) -> str:
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    return f"{host}:{sockets[0].getsockname()[1]}"


@asynccontextmanager
async def _servers(
    deployment: Deployment,
    upstreams: Upstreams,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
) -> AsyncIterator[tuple[Mapping[str, str], Watch]]:
    """The servers that were named, else those of this machine, with their groups; or a TtsError."""
    if upstreams.file and upstreams.addresses:
        raise ConfigError("Name the servers by --endpoint or by --endpoints-file, not by both.")
    addresses = upstreams.addresses or deployment.endpoints
    if upstreams.file or addresses:
        servers = NamedServers(addresses if not upstreams.file else (), upstreams.file, say)
        first = await servers.at_first(lambda each: asyncio.to_thread(serves, deployment, each))
        yield first, lambda replicas: follow(servers, replicas, say)
        return
    if deployment.server.kind == "embedded" or not deployment.engines():
        yield {}, lambda replicas: _watch(*replicas.pairs)  # the session has them
        return
    await asyncio.to_thread(require_engines, deployment, (), in_loop(say))
    server = await open_server(Triton(deployment), say, on_loading, lasting=True)
    name = local_name(deployment) if server.ours else server.address
    try:
        yield {name: ""}, lambda replicas: _watch(*([server] if server.started else ()))
    finally:
        await asyncio.to_thread(server.stop)


async def _watch(*own: EnginePair | Server) -> None:
    """Wait for ever, or until engines of the gateway's own have died for good: ServerError."""
    while True:
        for each in own:
            each.check()
        await asyncio.sleep(LOOK_S)


async def _first_of(*running: Awaitable[object]) -> None:
    """Wait until one of them has ended, and raise what it raises; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in running]
    try:
        finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in finished:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def _check_tls(listen: Listen) -> None:
    """Raise ConfigError unless both files of TLS are there and belong together, or neither is."""
    if listen.certificate is None and listen.key is None:
        return
    if listen.certificate is None or listen.key is None:
        raise ConfigError("TLS needs two files: --tls-certificate and --tls-key.")
    for file in (listen.certificate, listen.key):
        try:
            file.open("rb").close()
        except OSError as error:
            raise ConfigError(f"The TLS file {file} cannot be read: {error.strerror}.") from error
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            listen.certificate,
            listen.key,
            password="",  # else OpenSSL would ask for it
        )
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The TLS files {listen.certificate} and {listen.key} cannot be used: {error}.",
            hint="Give a certificate and its private key, without a password, as PEM files.",
        ) from error


def bind(listen: Listen) -> list[socket.socket]:
    """Sockets of all addresses of the host, which hold the port; raises ConfigError."""
    bound: list[socket.socket] = []
    port = listen.port
    try:
        addresses = socket.getaddrinfo(listen.host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, (host, _, *rest) in dict.fromkeys(addresses):
            bound.append(socket.socket(family, kind, protocol))
            bound[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound[-1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # of clients too
            if family == socket.AF_INET6:
                bound[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound[-1].bind((host, port, *rest))
            port = bound[-1].getsockname()[1]
    except (OSError, UnicodeError) as error:
        for each in bound:
            each.close()
        raise _cannot_listen(listen, error) from error
    return bound


def _cannot_listen(listen: Listen, error: Exception) -> ConfigError:
    return ConfigError(
        f"The gateway cannot listen on {listen.host}:{listen.port}: {error}.",
        hint="Choose another address with --host and --port, or --metrics.",
    )
