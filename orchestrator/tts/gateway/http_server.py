"""A gateway from its start to its end: where it listens, what it serves, how it stops."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from tts.build.errors import ConfigError
from tts.build.server_kinds import ServerKind
from tts.build.spec import Deployment, load_deployment
from tts.endpoints.routing import PolicyName, routing_policy
from tts.endpoints.routing.policies import THRESHOLD
from tts.serving.server.loading import Loading
from tts.session import AsyncSession
from tts.session.connecting import serves
from tts.session.function_files import verifier_of
from tts.session.replicas import CHECK_S, Replicas

from . import process
from .app import App
from .connections import HttpServer
from .draining import Drain
from .generation import TextGenerator
from .local_servers import local_servers
from .named_servers import NamedServers, follow
from .observability import Recorder, RequestLogs, telemetry_of
from .safety import (
    ApiKey,
    FilterChain,
    Keyring,
    KeyStore,
    Limiter,
    UsageBook,
    keys_file,
    usage_file,
)
from .service import Service, Settings

FEW, MANY = "latency", "throughput"
"""The groups of `by-concurrency`: high tensor parallelism, and many replicas."""
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


@dataclass(frozen=True)
class Upstreams:
    """Which servers are used; by default those that are found on this machine, or one started."""

    addresses: tuple[str, ...] = ()
    file: Path | None = None
    """Names them instead, and may change while the gateway runs."""
    routing: PolicyName = "prefix-affinity"
    threshold: int = THRESHOLD
    """Concurrent requests at which `by-concurrency` changes from group FEW to group MANY."""

    @property
    def named(self) -> bool:
        """Whether any are named here."""
        return bool(self.addresses or self.file)


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
    port = _usable_port(listen)
    _check_tls(listen)
    async with AsyncExitStack() as stack:
        store = KeyStore(keys_file())
        stack.callback(store.close)
        keyring = Keyring(store)
        keyring.require_for(listen.host)
        specs = [load_deployment(each).served_by(kind) for each in deployments]
        names = _names(specs, alone=upstreams.named or verifier is not None)
        limiter = Limiter()
        telemetry = telemetry_of(settings.otlp_endpoint, ",".join(names))
        log, usage = RequestLogs(names), UsageBook(usage_file())
        recorder = Recorder(log, telemetry, usage, keeps_prompts=settings.keep_prompts)
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
                routing=routing_policy(
                    upstreams.routing, few=FEW, many=MANY, threshold=upstreams.threshold
                ),
                groups=groups,
                say=say,
                on_loading=on_loading,
            )
            await stack.enter_async_context(session)
            generator = TextGenerator(session.models, session.replicas, filters)
            await generator.warm()
            services.append(
                Service(session, generator, settings, keyring, filters, recorder, drain, limiter)
            )
            watches.append(partial(watch, session.replicas))
        for service in services:
            service.beside = services
        for key, pattern in unserved_models(store, services):
            say(
                f"Key {key.id} ({key.name}) is for the model {pattern!r:.100}, which is not served "
                f"here; there are {', '.join(f'{name}, {name}:STRATEGY' for name in names)}."
            )
        process.started()
        await answer(
            services[0], listen, port, say, lambda: _first_of(*(watch() for watch in watches))
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


def unserved_models(store: KeyStore, services: Sequence[Service]) -> Iterator[tuple[ApiKey, str]]:
    """The valid keys that name models, or patterns of them, which no service has."""
    served = [name for service in services for name in service.models]
    for key in store.all():
        for pattern in key.models if key.is_valid(time.time()) else ():
            if not any(fnmatchcase(name, pattern) for name in served):
                yield key, pattern


def _stop_searches(services: Sequence[Service]) -> None:
    for service in services:
        service.session.stop_searches()


async def answer(
    service: Service,
    listen: Listen,
    port: int,
    say: Callable[[str], None],
    watch: Callable[[], Awaitable[None]],
) -> None:
    """Answer requests until the service is drained, or cancelled, or `watch` raises something."""
    server = _server(App(service), listen, port)
    serving = asyncio.ensure_future(server.serve())
    scheme = "https" if listen.certificate else "http"
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    try:
        await _until_listening(serving, listen.host, port)
        service.drain.open()
        names = ",".join(each.deployment.name for each in service.all)
        say(f"Serving {names} at {scheme}://{host}:{port}/v1 (Ctrl-C ends it)")
        await _first_of(asyncio.shield(serving), service.drain.drained(), watch())
    finally:
        await service.drain.end(partial(_stop_searches, service.all))
        server.stop()
        await asyncio.wait({serving})


@asynccontextmanager
async def _servers(
    deployment: Deployment,
    upstreams: Upstreams,
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
) -> AsyncIterator[tuple[Mapping[str, str], Watch]]:
    """The servers that were named, else those of this machine, each with its group or "".

    Raises a TtsError.
    """
    if upstreams.file and upstreams.addresses:
        raise ConfigError("Name the servers by --endpoint or by --replicas, not by both.")
    addresses = upstreams.addresses or deployment.endpoints
    if upstreams.file or addresses:
        named = NamedServers(addresses if not upstreams.file else (), upstreams.file, say)
        first = await named.at_first(lambda each: asyncio.to_thread(serves, deployment, each))
        yield first, lambda replicas: follow(named, replicas, say)
        return
    if deployment.server.kind == "embedded" or not deployment.engines():
        yield {}, _watch  # the session has them
        return
    async with local_servers(deployment, say, on_loading) as local:
        yield local.groups, lambda replicas: local.watch()


async def _watch(replicas: Replicas) -> None:
    """Wait for ever, or until engines of the session's own have died for good: ServerError."""
    while True:
        for pair in replicas.pairs:
            pair.check()
        await asyncio.sleep(CHECK_S)


async def _first_of(*running: Awaitable[None]) -> None:
    """Wait until one of them has ended, and raise what it raises; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in running]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


async def _until_listening(serving: asyncio.Future[None], host: str, port: int) -> None:
    """Wait until connections are accepted, or the server has ended."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    while not serving.done():
        try:
            _, writer = await asyncio.open_connection(reached, port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        writer.close()
        return


def _server(app: App, listen: Listen, port: int) -> HttpServer:
    certificate, key = listen.certificate, listen.key
    tls = (certificate, key) if certificate and key else None
    return HttpServer(app, listen.host, port, tls, process.most_connections())


def _check_tls(listen: Listen) -> None:
    """Raise ConfigError unless both files of TLS are there and belong together, or neither is."""
    if listen.certificate is None and listen.key is None:
        return
    if listen.certificate is None or listen.key is None:
        raise ConfigError("TLS needs two files: --tls-certificate and --tls-key.")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            listen.certificate, listen.key
        )
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The TLS files {listen.certificate} and {listen.key} cannot be used: {error}.",
            hint="Give a certificate and its private key, without a password, as PEM files.",
        ) from error


def _usable_port(listen: Listen) -> int:
    """The port, or one that is free; raises ConfigError if it cannot be listened on."""
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"The gateway cannot listen on {listen.host}:{listen.port}: {error}.",
            hint="Choose another address with --host and --port.",
        ) from error
