"""The engines that a session opens: those of one server or of several, or the program's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from tts.build import builder, paths
from tts.build.builder import require_current
from tts.build.errors import EndpointUnavailable, ServerError, TtsError
from tts.build.manifest import is_only_described
from tts.build.spec import Deployment
from tts.checks.requirements import require_gpu
from tts.endpoints.base import Connection, Generator, Verifier
from tts.endpoints.embedded import EmbeddedConnection
from tts.endpoints.triton import TritonConnection
from tts.prompting import Models
from tts.serving.repository.digest import deployment_digest
from tts.serving.server import probe
from tts.serving.server.lookup import LocalHealth
from tts.serving.server.state import comes_back

from .endpoints import Own, endpoints_on
from .remotes import RemoteConnection, Remotes
from .replicas import EnginePair, Replicas
from .server import Server, local_name


def only_pair(generator: Generator, verifier: Verifier) -> EnginePair:
    """The program's own endpoints, without a server."""
    return EnginePair("", generator, verifier)


def remote_pairs(remotes: Remotes, models: Models, own: Own) -> list[EnginePair]:
    """The replicas of a session that has no compiled engine."""
    return [_pair("", None, models, own, remotes, number) for number in range(len(remotes))]


def server_pairs(
    server: Server, models: Models, own: Own, remotes: Remotes | None
) -> list[EnginePair]:
    """The one server of a session, which is watched beside all that runs.

    It makes a pair with each replica of an engine that runs elsewhere.
    """
    deployment = models.deployment
    return [
        _pair(
            server.address,
            triton_connection(deployment, server.address, server.comes_back),
            models,
            own,
            remotes,
            number,
        )
        for number in range(max(1, len(remotes or ())))
    ]


def embedded_pairs(
    connection: EmbeddedConnection, models: Models, own: Own, remotes: Remotes | None
) -> list[EnginePair]:
    """The engines of a session that has no server, with each replica of one elsewhere."""
    pairs = [
        _pair(connection.address, connection, models, own, remotes, number)
        for number in range(max(1, len(remotes or ())))
    ]
    for pair in pairs:
        pair.check = connection.check
    return pairs


def use(replicas: Replicas, pairs: Iterable[EnginePair]) -> None:
    """Use pairs whose servers were probed; those that did not answer are used once they do."""
    for pair in pairs:
        replicas.use(pair)
        if isinstance(pair.connection, RemoteConnection) and (silent := pair.connection.silent):
            replicas.lose(pair, EndpointUnavailable(f"The {silent[0]}."))


async def build_if_quick(deployment: Deployment, say: Callable[[str], None]) -> None:
    """Build what is not built if that takes seconds, beside the loop; `say` gets a line then."""
    loop = asyncio.get_running_loop()

    def told(line: str) -> None:
        loop.call_soon_threadsafe(say, line)

    await asyncio.to_thread(builder.build_if_quick, deployment, told)


async def require_engines(
    deployment: Deployment,
    addresses: Sequence[str],
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Raise a TtsError for engines that are out of date, or that this machine cannot run.

    They need not run here where servers at `addresses` do. Engines of this machine that are not
    built are, if that takes seconds; `say` gets a line then. Where only their manifests are there
    is nothing to compare: the servers are recognised by the digest, which is made of these.
    """
    folders = [paths.engine_dir(deployment.name, role) for role in deployment.engines()]
    if addresses and all(map(is_only_described, folders)):
        return
    if not addresses:  # else they may run elsewhere
        require_gpu(deployment)
        await build_if_quick(deployment, say)
    require_current(deployment)


async def connect(
    deployment: Deployment,
    models: Models,
    own: Own,
    address: str,
    *,
    remotes: Remotes | None = None,
    number: int = 0,
) -> EnginePair:
    """The engines at `host:port` or `unix:path`, or of this machine's server by its name.

    `number` is which replica it is, counted from 0. Raises ServerError if they do not answer, or
    are not the deployment's.
    """
    pair = _replica(deployment, models, own, address, remotes, number)
    try:
        await pair.probe()
    except BaseException:
        await pair.close()
        raise
    return pair


async def open_pairs(
    replicas: Replicas,
    deployment: Deployment,
    models: Models,
    own: Own,
    addresses: Sequence[str],
    groups: Mapping[str, str],
    say: Callable[[str], None],
    remotes: Remotes | None = None,
) -> None:
    """Use the servers at these addresses; those that do not answer yet are used once they do.

    `groups` are those of the addresses that have one.

    Raises ServerError if none answers, or if one serves another deployment.
    """
    pairs = [
        _replica(deployment, models, own, addresses[number % len(addresses)], remotes, number)
        for number in range(max(len(addresses), len(remotes or ())))
    ]
    for pair in pairs:
        replicas.use(pair, groups.get(pair.name, ""))
    replicas.be_elastic()
    failures: dict[str, TtsError] = {}
    for pair, error in zip(pairs, await _all(pair.probe() for pair in pairs), strict=True):
        if error is None:
            continue
        if not isinstance(error, EndpointUnavailable):
            raise error
        failures[pair.name] = error
        replicas.lose(pair, error)
    if len(failures) == len(pairs):
        raise ServerError(
            f"No server answers at {', '.join(failures)}.",
            hint=f"Start them: tts serve {deployment.named}",
        )
    say(f"Using {', '.join(pair.name for pair in pairs if pair.name not in failures)}")
    for name in failures:
        say(f"{name} does not answer; it is used as soon as it does")


def triton_connection(
    deployment: Deployment, address: str, comes_back: Callable[[], bool] = lambda: False
) -> TritonConnection:
    """The connection to a server of a deployment, with all abilities of its target."""
    rows, host = most_rows(deployment), deployment.target == "openvino"
    return TritonConnection(
        address,
        comes_back,
        most_rows=rows,
        host=host,
        answer_timeout_s=deployment.answer_timeout_s,
    )


def most_rows(deployment: Deployment) -> int:
    """How many rows a request to a deployment's models may have.

    TensorRT-LLM takes one per request, our engine host as many as a Triton batch.
    """
    if deployment.target != "openvino":
        return 1
    return min(engine.max_batch_size for engine in deployment.engines().values())


def serves(deployment: Deployment, address: str) -> bool:
    """Whether the server at an address serves the deployment as it is here."""
    return probe.served_digest(address) == deployment_digest(deployment)


def _replica(
    deployment: Deployment,
    models: Models,
    own: Own,
    address: str,
    remotes: Remotes | None,
    number: int,
) -> EnginePair:
    if address != local_name(deployment):
        connection = triton_connection(deployment, address)
        pair = _pair(address, connection, models, own, remotes, number)
        pair.probe = partial(_probe, address, deployment, pair.probe)
        return pair
    health = LocalHealth(deployment)
    connection = triton_connection(deployment, health.address)
    pair = _pair(address, connection, models, own, remotes, number)
    pair.probe = partial(_probe, health.address, deployment, pair.probe)
    pair.check = health.check
    pair.comes_back = partial(comes_back, deployment.name)
    return pair


def _pair(
    name: str,
    beside: Connection | None,
    models: Models,
    own: Own,
    remotes: Remotes | None,
    number: int,
) -> EnginePair:
    """Both engines of a replica: where they are compiled `beside` leads to them."""
    if not remotes:
        assert beside is not None
        generator, verifier = endpoints_on(models, beside, own)
        return EnginePair(name, generator, verifier, beside, close=beside.aclose)
    connection = remotes.connection(number, beside)
    generator, verifier = endpoints_on(models, connection, own)
    return EnginePair(
        name if name and number == 0 else remotes.name(number),
        generator,
        verifier,
        connection,
        probe=connection.probe,
        close=connection.aclose,
    )


async def _probe(
    address: str, deployment: Deployment, others: Callable[[], Awaitable[None]]
) -> None:
    await asyncio.to_thread(_require_served, address, deployment)
    await others()


def _require_served(address: str, deployment: Deployment) -> None:
    """Raise ServerError if what answers is another deployment; else EndpointUnavailable."""
    digest = probe.served_digest(address)
    if digest is None:
        raise EndpointUnavailable(f"No server answers at {address}.")
    if digest != deployment_digest(deployment):
        raise ServerError(
            f"The server at {address} does not serve deployment {deployment.name} as it is here.",
            hint="Every server of a run must serve the same engines: rebuild and restart it, or "
            "leave it out.",
        )
    try:
        probe.probe(address, roles=deployment.engines())
    except ServerError as error:
        raise EndpointUnavailable(error.message, error.hint) from error


async def _all(running: Iterable[Awaitable[None]]) -> list[TtsError | None]:
    """The errors that they raised; any other than a TtsError is raised here."""
    found = await asyncio.gather(*running, return_exceptions=True)
    for each in found:
        if each is not None and not isinstance(each, TtsError):
            raise each
    return cast("list[TtsError | None]", found)
