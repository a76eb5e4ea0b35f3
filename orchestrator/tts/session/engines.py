"""The engines of a session: found, started or the program's own, for as long as it is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tts.build.errors import ServerError, SessionError

if TYPE_CHECKING:
    from tts.build.spec import Deployment, Role
    from tts.endpoints.base import Connection, Generator, Verifier
    from tts.endpoints.functions import RewardFunction, TextFunction
    from tts.endpoints.routing import RoutingPolicy
    from tts.prompting import Models
    from tts.serving.server.loading import Loading

    from .endpoints import Own
    from .engine_steps import OpenSteps
    from .plan import Plan
    from .remotes import Remotes
    from .replicas import EnginePair, Replicas
    from .server import Server

ROLES: tuple[Role, ...] = ("generator", "verifier")
_RESET_WAITS_S = (0.0, 0.1, 0.3, 1.0, 2.0)


class Engines:
    """Both engines of a deployment on one server or several; an async context manager.

    Entering it finds the servers or starts one, and leaving it stops what was started. What needs
    them raises SessionError outside of the block.
    """

    def __init__(
        self,
        deployment: Deployment,
        own: tuple[Generator | TextFunction | None, Verifier | RewardFunction | None],
        *,
        addresses: Sequence[str],
        routing: RoutingPolicy | None,
        groups: Mapping[str, str],
        say: Callable[[str], None],
        on_loading: Callable[[Loading], None],
    ) -> None:
        """`own`: the program's endpoints that replace a server's; the rest as for AsyncSession."""
        self.deployment = deployment
        self.own = own
        self._addresses = addresses
        self._routing = routing
        self._groups = groups
        self._say = say
        self._on_loading = on_loading
        self._resources = AsyncExitStack()
        self._replicas: Replicas | None = None
        self._remotes: Remotes | None = None
        self.server: Server | None = None
        """The one server that is used, unless there are several or none."""
        self.steps: OpenSteps | None = None
        """Opens what can be read of the engines' steps, if anything can be."""

    async def __aenter__(self) -> Self:
        try:
            self._replicas = await self._open()
        except BaseException:
            await self._resources.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._replicas = None
        await self._resources.aclose()

    @cached_property
    def models(self) -> Models:
        """The models' tokenizers, formats and limits; read when they are first needed.

        Raises CheckpointError.
        """
        from tts.prompting import Models

        return Models.load(self.deployment, text_verifier=self._scores_text)

    @property
    def replicas(self) -> Replicas:
        """The servers that are used; more may be added, and any drained and removed."""
        if self._replicas is None:
            raise not_open()
        return self._replicas

    @property
    def endpoints(self) -> tuple[Generator, Verifier]:
        """Generator and verifier, for requests that are part of no search.

        Of several servers each request goes to one by its load.
        """
        from .endpoints import own_endpoints, routed_endpoints

        if self.replicas.elastic:
            return routed_endpoints(self.replicas)
        return own_endpoints(self.replicas.pairs[0])

    @property
    def address(self) -> str:
        """Where the server that is used answers gRPC, the first of several.

        SessionError if there is none.
        """
        connection = self.replicas.pairs[0].connection
        if connection is None:
            raise SessionError("This session has no server: its endpoints are the program's own.")
        return connection.address

    def described(self, plan: Plan) -> Plan:
        """A plan with the facts about engines that run already, now that they were asked."""
        return replace(plan, remotes=self._remotes.found()) if self._remotes else plan

    def check(self) -> None:
        """Raise ServerError if the one server has died; of several the replicas' own watch sees."""
        if self.server and not self.replicas.elastic:
            self.server.check()

    async def reset_prefix_caches(self) -> bool:
        """See `AsyncSession.reset_prefix_caches`."""
        connections = [pair.connection for pair in self.replicas.pairs]
        deployment, on_triton = self.deployment, self.server or self.replicas.elastic
        if deployment.target != "openvino" or deployment.remotes():
            return False
        if on_triton and len(deployment.engines()) < 2:  # its connection asks both
            return False
        for connection in connections:
            if connection is None or not await _reset(connection):
                return False
        return True

    @property
    def _scores_text(self) -> bool:
        """Whether the verifier is a function, which needs no tokenizer."""
        from tts.endpoints.functions import reward_function

        return reward_function(self.own[1]) is not None

    def _own_generator(self) -> Generator | None:
        """The program's generator; each answer is checked."""
        from tts.endpoints.functions import CheckedGenerator, FunctionGenerator, text_function

        given: Any = self.own[0]
        if given is None:
            return None
        tokenizer = self.models.generator
        if function := text_function(given):
            delimiter = self.models.step_delimiter
            generator = FunctionGenerator(
                function, tokenizer, end_ids=tokenizer.eos_ids, step_delimiter=delimiter
            )
            self._resources.callback(generator.close)
            return generator
        return CheckedGenerator(given, tokenizer.vocab_size)

    def _own_verifier(self) -> Verifier | None:
        """The program's verifier; each answer is checked."""
        from tts.endpoints.functions import CheckedVerifier, FunctionVerifier, reward_function

        given: Any = self.own[1]
        if given is None:
            return None
        if function := reward_function(given):
            verifier = FunctionVerifier(function)
            self._resources.callback(verifier.close)
            return verifier
        return CheckedVerifier(given)

    async def _open(self) -> Replicas:
        from .connecting import connect, only_pair, remote_pairs, use
        from .remotes import Remotes
        from .replicas import Replicas

        self.models  # noqa: B018 - what cannot be read is said when the session opens
        own = generator, verifier = self._own_generator(), self._own_verifier()
        needed = {role for role, given in zip(ROLES, own, strict=True) if given is None}
        self._remotes = Remotes(self.models, needed)
        self._resources.push_async_callback(self._remotes.aclose)
        compiled = bool(needed & self.deployment.engines().keys())

        async def connecting(address: str) -> EnginePair:
            if not compiled:
                raise ServerError(
                    f"{address} cannot be added: no engine of {self.deployment.name} is served by "
                    "Triton.",
                    hint="Servers of engines that run already are named in the deployment's url.",
                )
            number = len(replicas)
            opened = self.deployment, self.models, own
            return await connect(*opened, address, remotes=self._remotes, number=number)

        replicas = Replicas(connecting, self._routing)
        await self._resources.enter_async_context(replicas)
        await self._remotes.probe(self._say)
        if compiled:
            await self._connect(replicas, own)
        elif needed:
            use(replicas, remote_pairs(self._remotes, self.models, own))
        elif generator is not None and verifier is not None:
            replicas.use(only_pair(generator, verifier))
        return replicas

    async def _connect(self, replicas: Replicas, own: Own) -> None:
        """Find the servers, or start one; `own` replace theirs."""
        from .connecting import embedded_pairs, open_pairs, require_engines, server_pairs, use
        from .embedded import embedded_engines
        from .server import open_server

        opened, remotes = (self.deployment, self.models, own), self._remotes
        if self.deployment.server.kind == "embedded" and not self._addresses:
            opening = embedded_engines(self.deployment, self._say, self._on_loading)
            engines = await self._resources.enter_async_context(opening)
            self.steps = engines.steps
            use(replicas, embedded_pairs(engines.connection, self.models, own, remotes))
            return
        await require_engines(self.deployment, self._addresses, self._say)
        if self._addresses:
            await open_pairs(replicas, *opened, self._addresses, self._groups, self._say, remotes)
            return
        self.server = await open_server(self.deployment, self._say, self._on_loading)
        self.steps = self.server.steps
        self._resources.push_async_callback(asyncio.to_thread, self.server.stop)
        use(replicas, server_pairs(self.server, self.models, own, remotes))


def not_open() -> SessionError:
    """The error for a session that is not open."""
    return SessionError(
        "The session is not open.", hint="Use it inside its with block, or before close()."
    )


async def _reset(connection: Connection) -> bool:
    for wait in _RESET_WAITS_S:  # requests that were cancelled may still be leaving
        await asyncio.sleep(wait)
        if await connection.reset_prefix_caches():
            return True
    return False
