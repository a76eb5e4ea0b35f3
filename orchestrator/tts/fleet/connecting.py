"""The pairs of engines of a session, and their connections to servers of Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tts.base import paths
from tts.base.errors import EndpointUnavailable, ServerError
from tts.build.builder import build_if_quick, require_current
from tts.build.manifest import is_only_described
from tts.build.spec import Deployment, VerifierRole
from tts.checks.requirements import require_gpu
from tts.endpoints.base import Connection
from tts.endpoints.triton import TritonConnection
from tts.engines import wire
from tts.prompting import Models
from tts.serving.repository.digest import deployment_digest
from tts.serving.server import probe
from tts.serving.server.lookup import LocalHealth
from tts.serving.server.supervisor import comes_back
from tts.serving.server.triton import Triton

from .endpoints import Own, endpoints_on
from .remotes import RemoteConnection, Remotes
from .replicas import EnginePair, Replicas
from .server import local_name


@dataclass(frozen=True)
class PairMaker:
    """Makes a session's pairs: each engine compiled, on a server of its own, or the program's."""

    models: Models
    own: Own
    remotes: Remotes

    def pair(self, name: str, beside: Connection | None, number: int = 0) -> EnginePair:
        """Both engines of a replica, counted from 0; `beside` leads to those that are compiled."""
        if self.remotes:
            remote = self.remotes.connection(number, beside)
            return EnginePair(
                name if name and number == 0 else self.remotes.name(number),
                *endpoints_on(self.models, remote, self.own),
                remote,
                probe=remote.probe,
                close=remote.aclose,
            )
        if beside is None:
            generator, verifier = self.own
            assert generator is not None  # or there would be something to connect to
            assert verifier is not None
            return EnginePair(name, generator, verifier)
        engines = endpoints_on(self.models, beside, self.own)
        return EnginePair(name, *engines, beside, close=beside.aclose)

    def pairs(
        self,
        name: str,
        connect: Callable[[], Connection | None],
        check: Callable[[], None] | None = None,
    ) -> list[EnginePair]:
        """The compiled engines, if there are any, with each replica of those elsewhere.

        `check`: see EnginePair. A single server is watched beside all that runs instead.
        """
        pairs = [self.pair(name, connect(), n) for n in range(max(1, len(self.remotes)))]
        for pair in pairs:
            pair.check = check or pair.check
        return pairs

    def at(self, address: str, number: int) -> EnginePair:
        """The engines at `host:port` or `unix:path`, or of this machine's server by its name."""
        deployment = self.models.deployment
        service = Triton(deployment)
        health = LocalHealth(service) if address == local_name(deployment) else None
        where = health.addresses.grpc if health else address
        pair = self.pair(address, triton_connection(deployment, where), number)
        pair.probe = partial(_probe, where, deployment, pair.probe)
        if health:
            pair.check = health.check
            pair.comes_back = partial(comes_back, service)
        return pair

    async def connected(self, address: str, number: int = 0) -> EnginePair:
        """`at`, once its engines have answered.

        Raises ServerError if they do not, or are not the deployment's.
        """
        pair = self.at(address, number)
        try:
            await pair.probe()
        except BaseException:
            await pair.close()
            raise
        return pair


def use(replicas: Replicas, pairs: Iterable[EnginePair]) -> None:
    """Use pairs whose servers were probed; those that did not answer are used once they do."""
    for pair in pairs:
        replicas.use(pair)
        if isinstance(pair.connection, RemoteConnection) and (silent := pair.connection.silent):
            replicas.lose(pair, EndpointUnavailable(f"The {silent[0]}."))


async def use_several(
    replicas: Replicas,
    make: PairMaker,
    addresses: Sequence[str],
    groups: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    """Use the servers at these addresses; those that do not answer yet are used once they do.

    `groups` are those of the addresses that have one.

    Raises ServerError if none answers, or if one serves another deployment.
    """
    pairs = [
        make.at(addresses[number % len(addresses)], number)
        for number in range(max(len(addresses), len(make.remotes)))
    ]
    for pair in pairs:
        replicas.use(pair, groups.get(pair.name, ""))
    replicas.be_elastic()
    silent: list[str] = []
    answers = await asyncio.gather(*(pair.probe() for pair in pairs), return_exceptions=True)
    for pair, error in zip(pairs, answers, strict=True):
        if isinstance(error, EndpointUnavailable):
            silent.append(pair.name)
            replicas.lose(pair, error)
        elif error is not None:
            raise error
    if len(silent) == len(pairs):
        raise ServerError(
            f"No server answers at {', '.join(silent)}.",
            hint=f"Start them: tts serve {make.models.deployment.argument}",
        )
    say(f"Using {', '.join(pair.name for pair in pairs if pair.name not in silent)}")
    for name in silent:
        say(f"{name} does not answer; it is used as soon as it does")


def require_engines(
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
        build_if_quick(deployment, say)
    require_current(deployment)


def triton_connection(
    deployment: Deployment, address: str, comes_back: Callable[[], bool] = lambda: False
) -> TritonConnection:
    """The connection to a server of a deployment, with all abilities of its target."""
    rows, host = most_rows(deployment), deployment.target == "openvino"
    verifier, shares = deployment.verifier, deployment.shares_engine
    asked = verifier if isinstance(verifier, VerifierRole) else None
    writes = shares or (asked is not None and asked.facts.writes)
    ensemble = not host and writes and asked is not None and asked.reads_logits
    own = wire.PRM_ENGINE if ensemble else wire.PRM
    return TritonConnection(
        address,
        comes_back,
        most_rows=rows,
        host=host,
        answer_timeout_s=deployment.answer_timeout_s,
        verifier_model=wire.GENERATOR if shares else own,
        verifier_writes=writes,
        scorer=wire.PRM if ensemble else None,
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
        probe.probe(address)
    except ServerError as error:
        raise EndpointUnavailable(error.message, error.hint) from error
