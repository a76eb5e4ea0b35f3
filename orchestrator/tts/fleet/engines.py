"""The engines of a session: found, started or the program's own, for as long as it is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tts.base.errors import EndpointUnavailable, ServerError, SessionError
from tts.build.sandbox import Sandbox
from tts.build.spec import ROLES, Deployment, VerifierCommand
from tts.endpoints.base import Generator, Verifier
from tts.endpoints.commands import CommandVerifier
from tts.endpoints.functions import (
    CheckedGenerator,
    CheckedVerifier,
    FunctionGenerator,
    FunctionVerifier,
    RewardFunction,
    TextFunction,
    reward_function,
    text_function,
)
from tts.endpoints.streaming import Connection
from tts.prompting import Models
from tts.serving.server.locks import comes_back
from tts.serving.server.lookup import LocalHealth
from tts.serving.server.started import Engine, started_services
from tts.serving.server.triton import Triton
from tts.serving.server.triton_log import Loading

from .connecting import require_engines, require_served, triton_connection
from .embedded import embedded_engines
from .endpoints import Own, RoutedEndpoints, endpoints_on
from .engine_steps import OpenSteps, steps_of
from .remotes import RemoteConnection, Remotes
from .replicas import EnginePair, Replicas
from .routing import RoutingPolicy
from .server import Server, in_loop, local_name, opened_servers

Replacements = tuple[Generator | TextFunction | None, Verifier | RewardFunction | None]
"""The program's own endpoints and functions, each instead of those of the servers."""
_RESET_WAITS_S = (0.0, 0.1, 0.3, 1.0, 2.0)


@dataclass
class Engines:
    """Both engines of a deployment, on one server or several. Made by `open_replicas`."""

    models: Models
    """Their tokenizers, formats and limits."""
    own: Own
    """The program's own endpoints, checked."""
    remotes: Remotes
    """The engines that are asked by HTTP."""
    replicas: Replicas
    """The servers that are used; more may be added, and any drained and removed."""
    servers: Sequence[Server] = ()
    """Servers that were started here, or found: of started engines, and a single Triton."""
    steps: OpenSteps | None = None
    """Opens what can be read of the engines' steps, if anything can be."""

    @property
    def endpoints(self) -> tuple[Generator, Verifier]:
        """Generator and verifier for requests that are part of no search, divided by load."""
        if self.replicas.elastic:
            routed = RoutedEndpoints(self.replicas)
            return routed, routed
        return self.replicas.pairs[0].endpoints

    @property
    def address(self) -> str:
        """Where the first server that is used answers gRPC; raises SessionError without one."""
        connection = self.replicas.pairs[0].connection
        if connection is None:
            raise SessionError("This session has no server: its endpoints are the program's own.")
        return connection.address

    def check(self) -> None:
        """Raise ServerError if a server has died for good; those that were named are watched."""
        for server in self.servers:
            server.check()

    async def reset_prefix_caches(self) -> bool:
        """See `AsyncSession.reset_prefix_caches`."""
        deployment = self.models.deployment
        compiled, shares_engine = deployment.engines(), deployment.shares_engine
        on_triton = self.servers or self.replicas.elastic
        if compiled and (deployment.target != "openvino" or self.remotes):
            return False
        if len(compiled) == 1 and on_triton and not shares_engine:  # its connection asks both
            return False
        connections = [pair.connection for pair in self.replicas.pairs]
        return all([each is not None and await _reset(each) for each in connections])

    def pair(self, name: str, beside: Connection | None, number: int = 0) -> EnginePair:
        """The pair of a replica, counted from 0; `beside` leads to the engines of ours.

        Without a name it has that of its server elsewhere.
        """
        if not self.remotes:
            pair = EnginePair(name, *endpoints_on(self.models, beside, self.own), beside)
            if beside:
                pair.close = beside.aclose
            return pair
        remote = self.remotes.connection(number, beside)
        return EnginePair(
            name or self.remotes.name(number),
            *endpoints_on(self.models, remote, self.own),
            remote,
            probe=remote.probe,
            close=remote.aclose,
        )

    def use_here(
        self,
        name: str,
        connect: Callable[[], Connection | None] = lambda: None,
        check: Callable[[], None] = lambda: None,
        *,
        ours: bool = False,
    ) -> None:
        """Use the engines of this machine, if there are any, with each replica of those elsewhere.

        `ours`: whether this user has started them, so that they are surely here. Replicas that did
        not answer when they were probed are used once they do. `check`: see EnginePair. A single
        server is watched beside all that runs instead.
        """
        for number in range(max(1, len(self.remotes))):
            pair = self.pair("" if number else name, connect(), number)
            pair.check, pair.is_here = check, ours
            self.replicas.use(pair)
            if isinstance(pair.connection, RemoteConnection) and pair.connection.silent:
                silent = pair.connection.silent[0]
                self.replicas.mark_down(pair, EndpointUnavailable(f"The {silent}."))

    def at(self, address: str, number: int) -> EnginePair:
        """The engines at `host:port` or `unix:path`, or of this machine's server by its name."""
        deployment = self.models.deployment
        service = Triton(deployment)
        health = LocalHealth(service) if address == local_name(deployment) else None
        where = health.addresses.grpc if health else address
        pair = self.pair(address, triton_connection(deployment, where), number)
        probe_remotes = pair.probe

        async def probe() -> None:
            await asyncio.to_thread(require_served, where, deployment)
            await probe_remotes()

        pair.probe = probe
        if health:
            pair.check = health.check
            pair.comes_back = partial(comes_back, service)
        return pair

    async def use_several(
        self, addresses: Sequence[str], groups: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        """Use the servers at these addresses; those that do not answer yet are used once they do.

        `groups` are those of the addresses that have one.

        Raises ServerError if none answers, or if one serves another deployment.
        """
        pairs = [
            self.at(addresses[number % len(addresses)], number)
            for number in range(max(len(addresses), len(self.remotes)))
        ]
        for number, pair in enumerate(pairs):
            pair.group = groups.get(pair.name, "")
            if number >= len(addresses):  # a server again, beside another one elsewhere
                pair.name = self.remotes.name(number)
            self.replicas.use(pair)
        self.replicas.enable_failover()
        silent: list[str] = []
        answers = await asyncio.gather(*(pair.probe() for pair in pairs), return_exceptions=True)
        for pair, error in zip(pairs, answers, strict=True):
            if isinstance(error, EndpointUnavailable):
                silent.append(pair.name)
                self.replicas.mark_down(pair, error)
            elif error is not None:
                raise error
        if len(silent) == len(pairs):
            raise ServerError(
                f"No server answers at {', '.join(silent)}.",
                hint=f"Start them: tts serve {self.models.deployment.argument}",
            )
        say(f"Using {', '.join(pair.name for pair in pairs if pair.name not in silent)}")
        for name in silent:
            say(f"{name} does not answer; it is used as soon as it does")


@asynccontextmanager
async def open_replicas(
    deployment: Deployment,
    own: Replacements,
    *,
    addresses: Sequence[str] = (),
    routing: RoutingPolicy | None = None,
    groups: Mapping[str, str],
    say: Callable[[str], None],
    on_loading: Callable[[Loading], None],
) -> AsyncIterator[Engines]:
    """Find the servers of a deployment or start one, for as long as the block lasts.

    `own` replace theirs; the rest is as for AsyncSession.
    """
    # what cannot be read is said when the session opens
    models = Models.load(deployment, text_verifier=takes_text(deployment, own[1]))
    async with AsyncExitStack() as stack:
        functions = stack.enter_context(ExitStack())
        verifier = own_verifier(own[1], functions) or await _command(deployment, say)
        checked = own_generator(models, own[0], functions), verifier
        needed = {role for role, each in zip(ROLES, checked, strict=True) if each is None}
        compiled = bool(needed & deployment.engines().keys()) or (
            deployment.shares_engine and "verifier" in needed
        )
        remotes = Remotes(models, needed)
        stack.push_async_callback(remotes.aclose)

        async def connect(address: str) -> EnginePair:
            if not compiled:
                raise ServerError(
                    f"{address} cannot be added: no engine of {deployment.name} is served by "
                    "Triton.",
                    hint="Servers of engines that run already are named in the deployment's url.",
                )
            pair = engines.at(address, len(replicas))
            try:
                await pair.probe()  # ServerError if it is not the deployment's
            except BaseException:
                await pair.close()
                raise
            return pair

        replicas = await stack.enter_async_context(Replicas(connect, routing))
        engines = Engines(models, checked, remotes, replicas)
        await remotes.probe([*remotes.servers], say)
        services = [*started_services(deployment, remotes.started)]
        here = compiled and not addresses and deployment.server.kind == "triton"
        if here:
            await asyncio.to_thread(require_engines, deployment, (), in_loop(say))
            services.append(Triton(deployment))
        opening_all = opened_servers(services, say, on_loading)
        engines.servers = servers = await stack.enter_async_context(opening_all)
        for service, server in zip(services, servers, strict=True):
            if isinstance(service, Engine):
                await remotes.add(service, server, say)
        if not compiled:
            engines.use_here("", check=engines.check)
        elif addresses:
            await asyncio.to_thread(require_engines, deployment, addresses, in_loop(say))
            await engines.use_several(addresses, groups, say)
        elif deployment.server.kind == "embedded":
            opening = embedded_engines(deployment, say, on_loading, needed)
            connection, engines.steps = await stack.enter_async_context(opening)
            engines.use_here(connection.address, lambda: connection, connection.check, ours=True)
        else:
            triton = servers[-1]
            engines.steps = steps_of(deployment, triton.addresses, ours=triton.ours)

            def to_server() -> Connection:
                return triton_connection(deployment, triton.address, triton.comes_back)

            engines.use_here(triton.address, to_server, ours=triton.ours)
        yield engines


def own_generator(models: Models, own: Any, functions: ExitStack) -> Generator | None:
    """The program's generator or function, each answer checked; `functions` ends its threads."""
    if own is None:
        return None
    tokenizer, delimiter = models.generator, models.step_delimiter
    if function := text_function(own):
        generator = FunctionGenerator(
            function, tokenizer, end_ids=tokenizer.eos_ids, step_delimiter=delimiter
        )
        functions.callback(generator.close)
        return generator
    return CheckedGenerator(own, tokenizer.vocab_size)


def own_verifier(own: Any, functions: ExitStack) -> Verifier | None:
    """The program's verifier or function, each answer checked; `functions` ends its threads."""
    if own is None:
        return None
    if function := reward_function(own):
        verifier = FunctionVerifier(function)
        functions.callback(verifier.close)
        return verifier
    return CheckedVerifier(own)


def takes_text(deployment: Deployment, own: Any) -> bool:
    """Whether chains are scored as text: by the program's own verifier, else the deployment's."""
    if own is None:
        return isinstance(deployment.verifier, VerifierCommand)
    return reward_function(own) is not None


async def _command(deployment: Deployment, say: Callable[[str], None]) -> Verifier | None:
    """The deployment's verifier if it is a command; raises ConfigError where it cannot be run."""
    spec = deployment.verifier
    if not isinstance(spec, VerifierCommand):
        return None
    sandbox = Sandbox(deployment.execution, spec.files)
    await asyncio.to_thread(sandbox.require, spec.command)
    say(f"{spec.title} runs in {sandbox}")
    return CommandVerifier(sandbox, spec.command)


async def _reset(connection: Connection) -> bool:
    if isinstance(connection, RemoteConnection):
        return await connection.reset_prefix_caches()
    for wait in _RESET_WAITS_S:  # requests that were cancelled may still be leaving
        await asyncio.sleep(wait)
        if await connection.reset_prefix_caches():
            return True
    return False
